import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { runVerb } from "./verb.ts";

const root = fileURLToPath(new URL("../", import.meta.url));
const example = (file: string) => join("test/fixtures/kinitiras/examples", file);
let folder = "";
before(async () => {
  folder = await mkdtemp(join(tmpdir(), "postern-"));
});
after(() => rm(folder, { recursive: true }));

/** `npx postern explain …`, to its end. */
const explain = (...words: string[]) => runVerb(root, ["explain", ...words]);

test("it says what a policy does", async () => {
  const { code, stdout } = await explain("--policy", example("addanno-op.yaml"));
  assert.equal(code, 0);
  assert.equal(
    stdout,
    `OverridePolicy default/add-anno-op-plaintext

What it does:
- On CREATE of v1 Pod with labels kinitiras.kcloudlabs.io/webhook=enabled in namespace default: adds /metadata/annotations/added-by with "op".

Where kinitiras does something else:
- it concerns its own namespace alone; upstream applies it in every one
- spec.overrideRules[0]: an object without annotations or labels is given some first; upstream fails the request
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
  assert.deepEqual([second.policy, second.faults], ["ClusterOverridePolicy b", ["spec.overrideRules is missing"]]);
  assert.equal(first.policy, "ClusterOverridePolicy a");
  assert.match(first.faults.join("\n"), /^spec.overrideRules\[0\].overriders.cue does not compile: .*"b" not found$/);
  assert.deepEqual(first.warnings, ["spec.resourceSelectors is empty: the policy concerns every object"]);
});

const sentences: [name: string, words: () => string[], stderr: RegExp][] = [
  ["neither", () => [], /^postern explain takes the name of one rule, or --policy FILE\n$/],
  [
    "both",
    () => ["always-admit", "--policy", "a.yaml"],
    /^postern explain takes the name of one rule, or --policy FILE\n$/,
  ],
  ["a file that isn't there", () => ["--policy", "nope.yaml"], /^nope.yaml can't be read: /],
  ["a file that is no YAML", () => ["--policy", join(folder, "broken.yaml")], /broken.yaml, document 1, is no YAML: /],
  ["a file that is empty", () => ["--policy", join(folder, "empty.yaml")], /empty.yaml holds no policy\n$/],
];
for (const [name, words, stderr] of sentences)
  test(`it is told of ${name} in one sentence`, async () => {
    await writeFile(join(folder, "broken.yaml"), "a: [");
    await writeFile(join(folder, "empty.yaml"), "");
    const ended = await explain(...words());
    assert.equal(ended.code, 2);
    assert.match(ended.stderr, stderr);
  });
