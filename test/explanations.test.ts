import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { evaluateCue } from "#lib/cue/engine.ts";
import { explainPolicyManifests, readPolicyManifests } from "../infra/policies/explanation.ts";
import { createTestFolder } from "./folders.ts";
import { readRows } from "./rows.ts";
import { runVerb } from "./verb.ts";

const root = fileURLToPath(new URL("../", import.meta.url));
const toExamplePath = (file: string) => join("test/bench/inputs/kinitiras-examples/examples", file);
const folder = await createTestFolder();

interface PolicyWithMistakes {
  name: string;
  text: string;
  faults?: string[];
  warnings?: string[];
}
const { policiesWithMistakes, admissionPolicies, refusedCommands } = readRows<{
  policiesWithMistakes: PolicyWithMistakes[];
  admissionPolicies: { name: string; text: string; explainedAs: string[] }[];
  refusedCommands: { name: string; words: string[]; stderr: string }[];
}>(import.meta.filename);

/** Runs `npx postern explain …` until it ends. */
const explain = (...words: string[]) => runVerb(root, ["explain", ...words]);

test("`postern explain` prints what a policy does", async () => {
  const { code, stdout } = await explain("--policy", toExamplePath("addanno-op.yaml"));
  assert.equal(code, 0);
  assert.equal(
    stdout,
    [
      "OverridePolicy default/add-anno-op-plaintext",
      "",
      "What it does:",
      '- On CREATE of v1 Pod with labels kinitiras.kcloudlabs.io/webhook=enabled in namespace default: adds /metadata/annotations/added-by with "op".',
      "",
      "docs/background/kinitiras-differences.md lists where kinitiras does something else.\n",
    ].join("\n"),
  );
});

test("`postern explain` prints the minor versions of Kubernetes in which a rule changes", async () => {
  assert.match(
    (await explain("pod-security", "--config", join(root, "test/fixtures/check/postern.yaml"))).stdout,
    /^differsFrom:\n( {2}- "1.\d+"\n)* {2}- "1.37"\n/m,
  );
});

test("`postern explain` prints the faults and warnings of policies and their scripts", async () => {
  const file = join(folder, "policies.yaml");
  const header = "apiVersion: policy.kcloudlabs.io/v1alpha1\nkind: ClusterOverridePolicy\nmetadata: { name: ";
  await writeFile(
    file,
    `${header}a }\nspec: { overrideRules: [{ overriders: { cue: "a: b" } }] }\n---\n${header}b }\nspec: {}\n`,
  );
  const { code, stdout } = await explain("--policy", file, "-o", "json");
  assert.equal(code, 1);
  // Policies with mistakes outside of their scripts come first.
  const [explanationOfB, explanationOfA, ...others] = JSON.parse(stdout);
  assert.deepEqual(others, []);
  const faults = [`${file}:9 spec.overrideRules is missing`];
  assert.deepEqual([explanationOfB.policy, explanationOfB.faults], ["ClusterOverridePolicy b", faults]);
  assert.equal(explanationOfA.policy, "ClusterOverridePolicy a");
  const fault = explanationOfA.faults.join("\n");
  assert.match(fault, /:4 spec.overrideRules\[0\].overriders.cue does not compile: .*"b" not found$/);
  const warnings = [`${file}:4 spec.resourceSelectors is empty: the policy applies to every object`];
  assert.deepEqual(explanationOfA.warnings, warnings);
});

for (const { name, text, faults = [], warnings = [] } of policiesWithMistakes)
  test(`an explanation names ${name}`, async () => {
    const file = join(folder, "located.yaml");
    await writeFile(file, text);
    const explanations = await explainPolicyManifests(await readPolicyManifests([file]), evaluateCue);
    const addFile = (lines: string[]) => lines.map((line) => `${file}:${line}`);
    const found = [explanations.flatMap((one) => one.faults), explanations.flatMap((one) => one.warnings)];
    assert.deepEqual(found, [addFile(faults), addFile(warnings)]);
  });

for (const { name, text, explainedAs } of admissionPolicies)
  test(`an explanation says what ${name} does`, async () => {
    const file = join(folder, "admission.yaml");
    await writeFile(file, text);
    const [explanation, ...others] = await explainPolicyManifests(await readPolicyManifests([file]), evaluateCue);
    assert.deepEqual(
      [explanation?.does, explanation?.faults, explanation?.warnings, others],
      [explainedAs, [], [], []],
    );
  });

test("`postern explain` doesn't name the page about kinitiras for a policy of Kubernetes", async () => {
  const file = join(folder, "admission.yaml");
  await writeFile(file, admissionPolicies[1]?.text ?? "");
  const { code, stdout } = await explain("--policy", file);
  assert.deepEqual([code, stdout.split("\n").slice(0, 3)], [0, ["MutatingAdmissionPolicy a", "", "What it does:"]]);
  assert.doesNotMatch(stdout, /kinitiras/);
});

for (const { name, words, stderr } of refusedCommands)
  test(`\`postern explain\` refuses ${name} with one sentence`, async () => {
    await writeFile(join(folder, "broken.yaml"), "a: [");
    await writeFile(join(folder, "empty.yaml"), "");
    const ended = await explain(...words.map((word) => word.replace("FOLDER", folder)));
    assert.equal(ended.code, 2);
    assert.match(ended.stderr, new RegExp(stderr));
  });
