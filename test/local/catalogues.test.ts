import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { mkdir, readdir, readFile, rm, symlink } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { type Checkout, openCheckout } from "../checkout.ts";
import { readRows } from "../rows.ts";

// Runs verbs in a project that has rules of Postern, rules of a catalogue in another package, and its own rules.
const root = fileURLToPath(new URL("../..", import.meta.url));
let project: Checkout;

const buildRule = (label: string) => `
import { rule } from "postern/rule";
export default rule({
  summary: "Requires a label ${label}.",
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }],
  validate: (pod) => (pod.metadata?.labels?.["${label}"] ? undefined : "metadata.labels must have ${label}"),
});
`;
const buildCases = (label: string) => `
- name: refuses a pod without it
  validate: { metadata: { name: a } }
  refused: metadata.labels must have ${label}
`;
const buildReadme = (name: string, label: string) =>
  `# ${name}\n\nRequires a label ${label}.\n\n## Why\n\nA test.\n\n## Settings\n\nNone.\n\n## Needs\n\nNothing.\n`;

/** Writes the folder of a rule. By default, its code is JavaScript, as in a published package. */
const writeRule = async (folder: string, name: string, label: string, file = "rule.js") => {
  await project.write(`${folder}/${name}/${file}`, buildRule(label));
  await project.write(`${folder}/${name}/cases.yaml`, buildCases(label));
  await project.write(`${folder}/${name}/README.md`, buildReadme(name, label));
};

/** Writes a package with a catalogue into node_modules. */
const writePackage = (name: string, exports: Record<string, string>) =>
  project.write(`node_modules/${name}/package.json`, JSON.stringify({ name, type: "module", exports }));

before(async () => {
  project = await openCheckout(["always-admit", "always-deny"]);
  await rm(join(project.folder, "node_modules"));
  await mkdir(join(project.folder, "node_modules"));
  for (const name of await readdir(join(root, "node_modules")))
    await symlink(join(root, "node_modules", name), join(project.folder, "node_modules", name));
  await symlink(project.folder, join(project.folder, "node_modules/postern"));

  await writePackage("acme-rules", { ".": "./rules/README.md", "./more": "./more/list.json", "./none": "./index.js" });
  await project.write("node_modules/acme-rules/rules/README.md", "# Rules of Acme\n");
  await project.write("node_modules/acme-rules/more/list.json", "{}\n");
  await writeRule("node_modules/acme-rules/rules", "require-team", "team");
  await writeRule("node_modules/acme-rules/rules", "require-owner", "owner-of-acme");
  await writeRule("node_modules/acme-rules/more", "require-team", "team-of-more");
  await project.write("node_modules/acme-rules/more/require-more/rule.js", "export default {{\n");
  await project.write("node_modules/acme-rules/more/require-more/cases.yaml", "");
  await project.write("node_modules/acme-rules/more/require-more/README.md", "");
  await writeRule("functions", "require-owner", "owner", "rule.ts");
  await project.write(
    "pod.yaml",
    "apiVersion: v1\nkind: Pod\nmetadata: { name: a }\nspec: { containers: [{ name: a, image: a }] }\n",
  );
});
after(() => project.remove());

interface CatalogueRow {
  name: string;
  /** The text of postern.yaml. */
  config: string;
  words: string[];
  code?: number;
  /** A pattern for standard output; if the code is 2, for standard error. */
  prints: string;
}

describe("a project with catalogues", () => {
  for (const { name, config, words, code = 0, prints } of readRows<CatalogueRow[]>(import.meta.filename))
    it(`a project with catalogues ${name}`, async () => {
      await project.write("postern.yaml", config);
      const result = await project.postern({}, ...words);
      assert.equal(result.code, code, result.stderr);
      assert.match(code === 2 ? result.stderr : result.stdout, new RegExp(prints));
    });

  it("a project gets a new rule in its own functions/, even if a catalogue has a rule of this name", async () => {
    await project.write("postern.yaml", "catalogues: [acme-rules]\n");
    const { code, stderr } = await project.postern({}, "new", "require-team");
    assert.deepEqual(
      [code, stderr],
      [0, "functions/require-team replaces the rule of this name that a catalogue has\n"],
    );
    assert.match(readFileSync(join(project.folder, "postern.yaml"), "utf8"), /^rules:\n {2}require-team:\n$/m);
    assert.match((await project.postern({}, "explain", "require-team")).stdout, /^from: functions\/$/m);
    assert.ok(!existsSync(join(project.folder, "functions/README.md")), "Postern's own list of rules was written");
    await rm(join(project.folder, "functions/require-team"), { recursive: true });
  });

  it("a project with catalogues can be built with a rule of a catalogue", async () => {
    await project.write("postern.yaml", "catalogues: [acme-rules]\nrules: { require-team: }\n");
    const built = await project.postern({}, "build", "--to", join(project.folder, "built"));
    assert.deepEqual([built.code, built.stderr], [0, ""]);
    const code = await readFile(join(project.folder, "built/require-team/index.cjs"), "utf8");
    assert.ok(code.includes("must have team"));
  });
});
