import assert from "node:assert/strict";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { parse, stringify } from "yaml";
import { readCatalogue } from "../infra/catalogue/registry.ts";
import { Complaint } from "../infra/cli/complaint.ts";
import { findRulesForPolicies, readPolicyCases, runPolicyCase } from "../infra/policies/policy-cases.ts";
import type { TestResult } from "../infra/testing/results.ts";
import { createTestFolder } from "./folders.ts";
import { readRows } from "./rows.ts";
import { runVerb } from "./verb.ts";

const root = fileURLToPath(new URL("..", import.meta.url));
const catalogue = await readCatalogue();
const folder = await createTestFolder();

const writeDocuments = async (file: string, ...documents: unknown[]): Promise<string> => {
  await mkdir(join(folder, "policies"), { recursive: true });
  await writeFile(join(folder, file), documents.map((one) => stringify(one)).join("---\n"));
  return join(folder, file);
};

const ownConfig = join(folder, "own.yaml");
await writeFile(ownConfig, "rules: { always-admit: }\n");
/** Runs `npx postern test …` until it ends. Adds the postern.yaml of this test if `words` have only policies. */
const runTestVerb = (...words: string[]) => {
  const needsConfig = words.includes("--policy") && !words.includes("--config");
  return runVerb(root, ["test", ...words, ...(needsConfig ? ["--config", ownConfig] : [])]);
};

/** A policy, a test case for it, and the expected result of the test case, with the reasons. */
interface Trial {
  name: string;
  policy: object;
  case: object;
  result: TestResult["result"];
  because?: string[];
}
const cases: Trial[] = parse(await readFile(new URL("policy-cases.yaml", import.meta.url), "utf8"));
// policy-cases.test.yaml: invalid cases, and refused commands, each with a pattern of the error.
const { invalidCases, refusedCommands } = readRows<{
  invalidCases: { name: string; given: { name: string }; sentence: string }[];
  refusedCommands: { name: string; words: string[]; stderr: string }[];
}>(import.meta.filename);
const findPolicy = (name: string) => cases.find((one) => one.name === name)?.policy ?? assert.fail(name);
const overridePolicy = findPolicy("passes if the object becomes what the case says");
const validatePolicy = findPolicy("passes if the object is admitted as the case says");
const settings = { http: { hosts: ["a.example.com"] } };
const pod = { apiVersion: "v1", kind: "Pod", metadata: { name: "a", namespace: "team" } };

describe("a policy's case", () => {
  for (const { name, policy, case: entry, result, because } of cases)
    it(`a policy's case ${name}`, async () => {
      const rules = findRulesForPolicies(catalogue, [policy]);
      const file = await writeDocuments("cases.yaml", [{ name: "is tried", ...entry }]);
      for (const one of await readPolicyCases(file, rules)) {
        const tried = await runPolicyCase(one);
        assert.deepEqual([tried.result, because && tried.because], [result, because], tried.because.join());
      }
    });

  it("a policy's case is evaluated by rules that read policies, with the rules' configured settings", () => {
    const configured = { mode: "enforce" as const, settings: { scripts: false } };
    const rules = findRulesForPolicies(catalogue, [validatePolicy], new Map([["policy-validate", configured]]));
    const found = rules.map(({ listed, settingsWithPolicies }) => {
      const { policies, scripts } = Object(listed.rule.settings);
      return { rule: listed.name, settingsWithPolicies, policyCount: policies.length, scripts };
    });
    // Only policy-validate gets the policy, because the policy validates; and only its setting `scripts` was changed.
    const settingsWithPolicies = ["policies"];
    assert.deepEqual(found, [
      { rule: "policy-override", settingsWithPolicies, policyCount: 0, scripts: true },
      { rule: "policy-validate", settingsWithPolicies, policyCount: 1, scripts: false },
    ]);
  });

  for (const { name, given, sentence } of invalidCases)
    it(`a policy's case is refused with ${name}`, async () => {
      const file = await writeDocuments("cases.yaml", name.startsWith("a map instead") ? given : [given]);
      await assert.rejects(
        readPolicyCases(file, findRulesForPolicies(catalogue, [validatePolicy])),
        (error) => error instanceof Complaint && new RegExp(sentence).test(error.message),
      );
    });
});

describe("postern test of policies", () => {
  const seenPod = { ...pod, metadata: { ...pod.metadata, annotations: { seen: "a" } } };
  const passingCase = { name: "sees a pod", mutate: pod, becomes: seenPod };
  const failingCase = { name: "sees none", mutate: pod, becomes: pod };
  // The policy that validates calls a URL, whose host the settings must allow.
  const callingCase = { name: "can't ask", operation: "DELETE", validate: pod, admitted: true };

  it("postern test prints a line for each case, for several files and folders", async () => {
    await writeDocuments("policies/override.yaml", overridePolicy);
    await writeDocuments("policies/validate.yaml", validatePolicy);
    const first = await writeDocuments("first.yaml", [passingCase]);
    const second = await writeDocuments("second.yaml", [failingCase]);
    const { code, stdout } = await runTestVerb(
      "--policy",
      join(folder, "policies"),
      "--cases",
      first,
      "--cases",
      second,
    );
    const lines = [
      "passed  sees a pod",
      "failed  sees none",
      '        the object has {"seen":"a"} at /metadata/annotations, not nothing',
      "",
      "2 cases: 1 passed, 1 failed",
      "",
    ];
    assert.deepEqual([code, stdout], [1, lines.join("\n")]);
  });

  it("postern test of policies prints JSON, and ends with 3 if a case can't be evaluated", async () => {
    const policies = [await writeDocuments("a.yaml", overridePolicy), await writeDocuments("b.yaml", validatePolicy)];
    const file = await writeDocuments("cases.yaml", [passingCase, callingCase]);
    const policyOptions = policies.flatMap((one) => ["--policy", one]);
    const { code, stdout } = await runTestVerb(...policyOptions, "--cases", file, "-o", "json");
    assert.equal(code, 3);
    const results = JSON.parse(stdout).cases.map(({ name, result }: TestResult) => [name, result]);
    assert.deepEqual(results, [
      ["sees a pod", "passed"],
      ["can't ask", "not evaluated"],
    ]);
  });

  it("postern test uses the settings of postern.yaml", async () => {
    const rules = { "policy-validate": { settings } };
    const config = await writeDocuments("postern.yaml", { rules, clusters: { here: {}, there: {} } });
    const file = await writeDocuments("cases.yaml", [
      { ...callingCase, needs: { http: [{ url: "https://a.example.com/a", answer: { status: 200, body: "{}" } }] } },
    ]);
    const policy = await writeDocuments("b.yaml", validatePolicy);
    const words = ["--policy", policy, "--cases", file, "--config", config];
    assert.equal((await runTestVerb(...words, "--cluster", "there")).stdout, "passed  can't ask\n\n1 case: 1 passed\n");
    assert.deepEqual(await runTestVerb(...words), {
      code: 2,
      stdout: "",
      stderr: "--cluster is missing; it must name one of here, there\n",
    });
  });

  it("postern test runs no case of policies with faults and prints the faults", async () => {
    const faultyScript = { overrideRules: [{ overriders: { cue: "a: b" } }] };
    const second = { ...overridePolicy, metadata: { name: "b" }, spec: faultyScript };
    const third = { ...overridePolicy, metadata: { name: "c" }, spec: {} };
    const policies = await writeDocuments("faulty.yaml", overridePolicy, second, third);
    const file = await writeDocuments("cases.yaml", [passingCase]);
    const { code, stdout } = await runTestVerb("--policy", policies, "--cases", file);
    assert.equal(code, 1);
    assert.match(
      stdout,
      /^ClusterOverridePolicy c\n\nWhat is wrong with it:\n- \S+faulty\.yaml:\d+ spec\.overrideRules is missing\n/,
    );
    assert.match(
      stdout,
      /ClusterOverridePolicy b\n\nWhat is wrong with it:\n- .*cue does not compile: .*"b" not found\n$/,
    );
  });

  for (const { name, words, stderr } of refusedCommands)
    it(`postern test reports ${name} in one sentence`, async () => {
      const ended = await runTestVerb(...words.map((word) => word.replace("FOLDER", folder)));
      assert.equal(ended.code, 2);
      assert.match(ended.stderr, new RegExp(stderr));
    });
});
