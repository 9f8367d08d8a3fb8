import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { evaluateCue } from "#lib/cue/engine.ts";
import { explainPolicyDocuments, readPolicies } from "../infra/policies/explanation.ts";
import { createTestFolder } from "./folders.ts";
import { runVerb } from "./verb.ts";

const root = fileURLToPath(new URL("../", import.meta.url));
const toExamplePath = (file: string) => join("infra/bench/kinitiras-examples/examples", file);
const folder = await createTestFolder();

/** `npx postern explain …`, to its end. */
const explain = (...words: string[]) => runVerb(root, ["explain", ...words]);

test("it says what a policy does", async () => {
  const { code, stdout } = await explain("--policy", toExamplePath("addanno-op.yaml"));
  assert.equal(code, 0);
  assert.equal(
    stdout,
    `OverridePolicy default/add-anno-op-plaintext

What it does:
- On CREATE of v1 Pod with labels kinitiras.kcloudlabs.io/webhook=enabled in namespace default: adds /metadata/annotations/added-by with "op".

docs/behaviour/kinitiras-differences.md lists where kinitiras does something else.
`,
  );
});

test("it says what is wrong with a policy and its scripts, and what to look at", async () => {
  const file = join(folder, "policies.yaml");
  const header = "apiVersion: policy.kcloudlabs.io/v1alpha1\nkind: ClusterOverridePolicy\nmetadata: { name: ";
  await writeFile(
    file,
    `${header}a }\nspec: { overrideRules: [{ overriders: { cue: "a: b" } }] }\n---\n${header}b }\nspec: {}\n`,
  );
  const { code, stdout } = await explain("--policy", file, "-o", "json");
  assert.equal(code, 1);
  const [second, first, ...more] = JSON.parse(stdout);
  assert.deepEqual(more, []);
  const faults = [`${file}:9 spec.overrideRules is missing`];
  assert.deepEqual([second.policy, second.faults], ["ClusterOverridePolicy b", faults]);
  assert.equal(first.policy, "ClusterOverridePolicy a");
  assert.match(first.faults.join("\n"), /:4 spec.overrideRules\[0\].overriders.cue does not compile: .*"b" not found$/);
  assert.deepEqual(first.warnings, [`${file}:4 spec.resourceSelectors is empty: the policy applies to every object`]);
});

const printHeader = (kind: string) =>
  `apiVersion: policy.kcloudlabs.io/v1alpha1\nkind: ${kind}\nmetadata: { name: a }\nspec:`;
const validating = printHeader("ClusterValidatePolicy");
const overriding = printHeader("ClusterOverridePolicy");
const everything = "4 spec.resourceSelectors is empty: the policy applies to every object";

const located: [name: string, text: string, faults: string[], warnings: string[]][] = [
  [
    "the line of each fault, below a missing field that of the one above",
    `# a comment\n---\n${overriding}\n  overrideRules:\n    - overriders:\n        plaintext:\n          - path: /a\n            op: copy\n          - { op: add }\n`,
    [
      '11 spec.overrideRules[0].overriders.plaintext[0].op must be add, replace or remove, not "copy"',
      "12 spec.overrideRules[0].overriders.plaintext[1].path is missing",
    ],
    [],
  ],
  [
    "the line of a key in quotes",
    `${overriding}\n  overrideRules:\n    - overriders:\n        origin:\n          - type: labels\n            operation: add\n            labels:\n              a b: c\n              d: 1\n`,
    ['12 spec.overrideRules[0].overriders.origin[0].labels["d"] must be a text, not 1'],
    [],
  ],
  [
    "the line in a list, and of a policy that is there twice",
    `apiVersion: v1\nkind: List\nitems:\n${`  - ${overriding.replaceAll("\n", "\n    ")} { overrideRules: [] }\n`.repeat(2)}`,
    ["8 is there twice"],
    ["7 spec.resourceSelectors is empty: the policy applies to every object"],
  ],
  [
    "selectors of kinds that Kubernetes doesn't have",
    `${validating}\n  resourceSelectors:\n    - { apiVersion: v1, kind: pod }\n    - apiVersion: v1\n      kind: Deployment\n    - { apiVersion: v1, kind: Gadget }\n  validateRules: []\n`,
    [],
    [
      "6 spec.resourceSelectors[0] selects nothing: Kubernetes 1.36 has no pod of v1, but Pod of v1",
      "7 spec.resourceSelectors[1] selects nothing: Kubernetes 1.36 has no Deployment of v1, but Deployment of apps/v1",
      "9 spec.resourceSelectors[2] selects nothing: Kubernetes 1.36 has no Gadget of v1",
    ],
  ],
  [
    "nothing of kinds that Kubernetes has, or that a CustomResourceDefinition may define",
    `${validating}\n  resourceSelectors:\n    - { apiVersion: apps/v1, kind: Deployment }\n    - { apiVersion: example.com/v1, kind: pod }\n  validateRules: []\n`,
    [],
    [],
  ],
  [
    "references to kinds that Kubernetes doesn't have",
    `${overriding}\n  overrideRules:\n    - overriders:\n        template:\n          type: labels\n          operation: add\n          path: a\n          valueRef:\n            from: k8s\n            path: /data/a\n            k8s: { apiVersion: v1, kind: deployment, name: a }\n`,
    [],
    [
      everything,
      "14 spec.overrideRules[0].overriders.template.valueRef.k8s finds nothing, and every request fails: Kubernetes 1.36 has no deployment of v1, but Deployment of apps/v1",
    ],
  ],
  [
    "outputs of scripts that have a wrong shape",
    `${validating}\n  validateRules:\n    - cue: "validate: {valid: true}"\n    - cue: |\n        validate: true\n`,
    [],
    [
      everything,
      '7 spec.validateRules[1].cue must set validate to a struct, such as {valid: false, reason: "…"}: every request fails',
    ],
  ],
  [
    "patches that are no list",
    `${overriding}\n  overrideRules:\n    - overriders: { cue: "patches: {}" }\n    - overriders: { cue: "patches: null" }\n`,
    [],
    [
      everything,
      '6 spec.overrideRules[0].overriders.cue must set patches to a list, such as [{op: "remove", path: "…"}]: every request fails',
    ],
  ],
];
for (const [name, text, faults, warnings] of located)
  test(`it names ${name}`, async () => {
    const file = join(folder, "located.yaml");
    await writeFile(file, text);
    const all = await explainPolicyDocuments(await readPolicies([file]), evaluateCue);
    const addFile = (lines: string[]) => lines.map((line) => `${file}:${line}`);
    assert.deepEqual(
      [all.flatMap((explanation) => explanation.faults), all.flatMap((explanation) => explanation.warnings)],
      [addFile(faults), addFile(warnings)],
    );
  });

const sentences: [name: string, words: () => string[], stderr: RegExp][] = [
  ["neither", () => [], /^postern explain takes the name of one rule, or --policy FILE\n$/],
  [
    "both",
    () => ["always-admit", "--policy", "a.yaml"],
    /^postern explain takes the name of one rule, or --policy FILE\n$/,
  ],
  ["a file that isn't there", () => ["--policy", "nope.yaml"], /^nope.yaml can't be read: /],
  ["a file that is no YAML", () => ["--policy", join(folder, "broken.yaml")], /broken.yaml:1 is no YAML: /],
  ["a file that is empty", () => ["--policy", join(folder, "empty.yaml")], /empty.yaml contains no policy\n$/],
];
for (const [name, words, stderr] of sentences)
  test(`it is told of ${name} in one sentence`, async () => {
    await writeFile(join(folder, "broken.yaml"), "a: [");
    await writeFile(join(folder, "empty.yaml"), "");
    const ended = await explain(...words());
    assert.equal(ended.code, 2);
    assert.match(ended.stderr, stderr);
  });
