import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { stringify } from "yaml";
import { readCatalogue } from "../infra/catalogue/registry.ts";
import { readPolicyManifests } from "../infra/policies/explanation.ts";
import { openPolicyTests } from "../infra/policies/policy-tests.ts";
import { createTestFolder } from "./folders.ts";
import { readRows } from "./rows.ts";
import { runVerb } from "./verb.ts";

/** An admission policy's `files`, test cases for `postern test`, and what `postern test` reports about them. */
interface Trial {
  name: string;
  files: object[];
  cases: { case: object; failed?: string[]; notes?: string[]; unevaluated?: string }[];
  warnings?: string[];
  untested?: string[];
}
const trials = readRows<Trial[]>(import.meta.filename);
const catalogue = await readCatalogue();
const folder = await createTestFolder();
const root = fileURLToPath(new URL("..", import.meta.url));
const write = async (name: string, text: string): Promise<string> => {
  const file = join(folder, name);
  return writeFile(file, text).then(() => file);
};
const config = await write("own.yaml", "rules: { always-admit: }\n");
const runTestVerb = (...words: string[]) => runVerb(root, ["test", ...words, "--config", config]);
const toYaml = (documents: readonly object[]) =>
  documents.map((one) => stringify(one, { aliasDuplicateObjects: false })).join("---\n");

describe("cases of admission policies have the expected results for", () => {
  for (const { name, files, cases, warnings = [], untested = [] } of trials)
    it(`cases of admission policies have the expected results for ${name}`, async () => {
      const policyFile = await write("policies.yaml", toYaml(files));
      const namedCases = cases.map((one, index) => ({ name: String(index), ...one.case }));
      const file = await write("cases.yaml", stringify(namedCases));
      const manifests = await readPolicyManifests([policyFile]);
      const { runCases, listRemarks } = await openPolicyTests(manifests, [file], catalogue);
      const results = await Array.fromAsync(runCases());
      assert.deepEqual(
        results.map(({ result, because }) => [result, because]),
        cases.map(({ failed, notes = [], unevaluated }) => {
          if (unevaluated !== undefined) return ["not evaluated", [unevaluated]];
          return failed ? ["failed", failed] : ["passed", notes];
        }),
      );
      const remarks = listRemarks();
      assert.deepEqual(
        [remarks.warnings, remarks.untested.map((one) => `${one.file}:${one.line} ${one.policy}: ${one.sentence}`)],
        [warnings, untested].map((lines) => lines.map((line) => `${policyFile}${line}`)),
      );
    });
});

const [{ files: policyManifests, cases }] = trials as [Trial];
const [admittedCase, refusedCase] = cases.map((one) => one.case);

describe("postern test of admission policies", () => {
  const run = async (cases: string, ...words: string[]) => {
    const policies = await write("policies.yaml", toYaml(policyManifests));
    const file = await write("cases.yaml", cases);
    const { code, ...output } = await runTestVerb("--policy", policies, "--cases", file, ...words);
    const [stdout, stderr] = [output.stdout, output.stderr].map((text) => text.replaceAll(folder, "FOLDER"));
    return { code, stdout: stdout ?? "", stderr: stderr ?? "" };
  };
  const firstCase = stringify([{ name: "admits one", ...admittedCase }]);
  const twoCases = `${firstCase}${stringify([{ name: "refuses six", ...refusedCase }])}`;
  const warning =
    "FOLDER/policies.yaml:1 ValidatingAdmissionPolicy replicas has no binding: its cases run as if it had a binding with the name everything, for all objects, with Deny";
  const sentence = "spec.validations[0].expression is false in no case: object.spec.replicas <= 5";

  it("postern test prints warnings and untested expressions before the line with the number of cases", async () => {
    const { code, stdout } = await run(firstCase);
    const remark = `FOLDER/policies.yaml:18 ValidatingAdmissionPolicy replicas: ${sentence}`;
    assert.deepEqual(
      [code, stdout],
      [0, `passed  admits one\n\nWhat to look at:\n- ${warning}\n- ${remark}\n\n1 case: 1 passed\n`],
    );
  });

  it("postern test prints JSON, which has the policies that matched each case", async () => {
    const { stdout } = await run(firstCase, "-o", "json");
    const policy = "ValidatingAdmissionPolicy replicas";
    assert.deepEqual(JSON.parse(stdout), {
      cases: [
        {
          file: "FOLDER/cases.yaml",
          line: 1,
          name: "admits one",
          result: "passed",
          because: [],
          policies: [{ policy, matched: true }],
        },
      ],
      warnings: [warning],
      untested: [{ policy, file: "FOLDER/policies.yaml", line: 18, field: "spec.validations[0].expression", sentence }],
    });
  });

  it("postern test prints warnings as the output of a JUnit suite", async () => {
    const { stdout } = await run(twoCases, "-o", "junit");
    assert.match(stdout, / tests="2" failures="0" /);
    assert.match(stdout, new RegExp(`<system-out>${RegExp.escape(warning)}</system-out>`));
  });

  for (const [name, text, line] of [
    [
      "an unknown member",
      twoCases.replace("admitted:", "admited:"),
      '7 "admits one" has no member admited; did you mean admitted?',
    ],
    [
      "the name of a policy that doesn't exist",
      twoCases.replace("- name: admits", "- variant: replica\n  name: admits"),
      '1 "admits one" has the variant "replica", which is no policy; did you mean replicas?',
    ],
    [
      "a phase for which there are no policies",
      twoCases.replace("validate:", "mutate:"),
      '2 "admits one" has mutate, but no rule for the tested policies has that phase',
    ],
  ] as const)
    it(`postern test names the line of ${name}`, async () =>
      assert.deepEqual(await run(text), { code: 2, stdout: "", stderr: `FOLDER/cases.yaml:${line}\n` }));

  for (const [name, wrong, sentence] of [
    ["an unknown field", "replica: 6", "has an unknown field in validate: spec.replica; did you mean replicas?"],
    [
      "a value that an API server can't read",
      'replicas: "6"',
      'has a value that an API server refuses in validate: spec.replicas must be a whole number, not "6"',
    ],
  ] as const)
    it(`postern test fails a case for ${name} of its object, and runs the other cases`, async () => {
      const { code, stdout, stderr } = await run(twoCases.replace("replicas: 6", wrong));
      assert.deepEqual([code, stderr], [1, ""]);
      const line = `failed  refuses six\n        FOLDER/cases.yaml:15 ${sentence}\n`;
      assert.ok(stdout.startsWith(`passed  admits one\n${line}`), stdout);
    });

  it("postern test names the line of an object without a name", async () => {
    const manifests = `${toYaml(policyManifests)}---\n{ apiVersion: v1, kind: ConfigMap }\n`;
    const policies = await write("nameless.yaml", manifests);
    const { code, stderr } = await runTestVerb("--policy", policies, "--cases", await write("cases.yaml", twoCases));
    const sentence = "nameless.yaml:20 is no manifest: it must have an apiVersion, a kind and a metadata.name\n";
    assert.deepEqual([code, stderr], [2, join(folder, sentence)]);
  });

  it("postern test reads no policies from a file of cases in the folder of policies", async () => {
    await mkdir(join(folder, "team"));
    await write("team/policies.yaml", toYaml(policyManifests));
    const file = await write("team/cases.yaml", twoCases);
    const { code, stdout } = await runTestVerb("--policy", join(folder, "team"), "--cases", file);
    assert.equal(code, 0, stdout);
  });

  it("postern test runs no case of a policy that an API server would refuse", async () => {
    const policies = await write("policies.yaml", toYaml(policyManifests).replace("<= 5", "<= '5' + 1"));
    const file = await write("cases.yaml", twoCases);
    const { code, stdout } = await runTestVerb("--policy", policies, "--cases", file);
    assert.equal(code, 1);
    assert.match(
      stdout,
      /^ValidatingAdmissionPolicy replicas\n\nWhat is wrong with it:\n- \S+policies\.yaml:18 spec\.validations\[0\]\.expression: Invalid value: .*found no matching overload for '_\+_'/,
    );
  });
});
