import assert from "node:assert/strict";
import { mkdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { createTestFolder } from "../../test/folders.ts";
import { readRows } from "../../test/rows.ts";
import { loadRules, readCatalogue } from "../catalogue/registry.ts";
import { toRuleFolder } from "../catalogue/sources.ts";
import type { Complaint } from "../cli/complaint.ts";
import { findRuleMistakes, readConfigManifests, requireValidRules } from "./rule-mistakes.ts";

/** The members of a rule, and the mistakes in them. */
interface RuleRow {
  what: string;
  members?: string;
  /** Null if the rule has no match. */
  match?: string | null;
  mistakes?: string[];
  warnings?: string[];
  /**
   * False if loading reports mistakes, so that no command can use the rule. Other mistakes are found only before a build.
   */
  isLoaded?: boolean;
}

const {
  rules: ruleRows,
  imports: importRows,
  widgetDefinition,
} = readRows<{
  rules: RuleRow[];
  imports: { what: string; text: string; sentence: string }[];
  /** The CustomResourceDefinition of a kind Widget. */
  widgetDefinition: object;
}>(import.meta.filename);

const project = await createTestFolder();
let count = 0;

before(async () => {
  await mkdir(join(project, "node_modules"));
  await symlink(fileURLToPath(new URL("../..", import.meta.url)), join(project, "node_modules/postern"), "junction");
});

const podsMatch = '[{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }]';

/** Writes a rule.ts with these members, which are TypeScript. Returns the loaded rule, and mistakes that it has. */
const loadRule = async (members: string) => {
  const name = `forbid-${++count}`;
  const folder = join(project, name);
  await mkdir(folder);
  const files = {
    "rule.ts": `import { get, list } from "postern/needs";
import { rule } from "postern/rule";

export default rule({
${members}
  summary: "Tests a rule.",
  validate() {},
});
`,
    "cases.yaml": "",
    "README.md": "",
  };
  for (const [file, text] of Object.entries(files)) await writeFile(join(folder, file), text);
  const { rules, broken } = await loadRules([toRuleFolder(folder, name)]);
  const [brokenRule] = broken;
  const listed = brokenRule?.listed ?? rules[0];
  assert.ok(listed);
  return {
    listed,
    loadMistakes: (brokenRule?.sentence ?? "")
      .split("\n")
      .filter(Boolean)
      .map((line) => line.replace(/^.*\/rule\.ts:/, "")),
  };
};

describe("the definition of a rule that", () => {
  for (const { what, members = "", match = podsMatch, mistakes = [], warnings = [], isLoaded = true } of ruleRows)
    it(`${what} has exactly these mistakes and warnings`, async () => {
      const matchMember = match === null ? "" : `match: ${match.trim()},`;
      const { listed, loadMistakes } = await loadRule([members.trimEnd(), matchMember].filter(Boolean).join("\n"));
      const found = (await findRuleMistakes([listed], [widgetDefinition])).get(listed) ?? [];
      const format = (isWarned: boolean) =>
        found
          .filter(({ isWarning = false }) => isWarning === isWarned)
          .map(({ line, sentence }) => `${line} ${sentence}`);
      assert.deepEqual([format(false), format(true)], [mistakes, warnings]);
      assert.equal(loadMistakes.length === 0, isLoaded);
      // If the rule can't be loaded, the error of loading has some of the same mistakes.
      const otherLoadMistakes = loadMistakes.filter((sentence) => !mistakes.includes(sentence));
      assert.deepEqual(otherLoadMistakes, []);
    });
});

describe("a rule that does not load because", () => {
  for (const { what, text, sentence } of importRows)
    it(`${what} has the line of the import`, async () => {
      const name = `forbid-${++count}`;
      await mkdir(join(project, name));
      for (const [file, content] of Object.entries({ "rule.ts": text, "cases.yaml": "", "README.md": "" }))
        await writeFile(join(project, name, file), content);
      const { broken } = await loadRules([toRuleFolder(join(project, name), name)]);
      assert.equal(broken[0]?.sentence.replace(/^.* does not load: /, ""), sentence);
    });
});

describe("a build", () => {
  it("a build refuses a rule whose match contradicts the CustomResourceDefinitions in the manifests", async () => {
    const row = '{ apiGroups: ["example.com"], apiVersions: ["v1"], resources: ["widget"], operations: ["CREATE"] }';
    const { listed } = await loadRule(`match: [${row}],`);
    const file = join(project, "postern.yaml");
    await writeFile(file, "clusters: { a: { connect: { manifests: cluster } } }");
    const trim = (sentence: string) => sentence.replace(/^.*(?=\/rule\.ts:)/, "");
    assert.deepEqual((await requireValidRules([listed], file)).map(trim), [
      `/rule.ts:5 the group "example.com" is neither in Kubernetes, nor in the rule's crd.yaml, nor in the manifests that postern.yaml names; its resources are not checked`,
    ]);
    await mkdir(join(project, "cluster"));
    await writeFile(join(project, "cluster/widgets.json"), JSON.stringify(widgetDefinition));
    await assert.rejects(requireValidRules([listed], file), ({ message, exitCode }: Complaint) => {
      assert.equal(exitCode, 2);
      assert.equal(
        trim(message),
        '/rule.ts:5 match.0.resources has "widget", which is not in example.com/v1; did you mean widgets?',
      );
      return true;
    });
  });

  it("a build opens no other file that postern.yaml names", async () => {
    const file = join(project, "postern.yaml");
    // Each of these files would count as a manifest if it were opened.
    const kubeconfig = {
      ...widgetDefinition,
      clusters: [{ name: "a", cluster: { "certificate-authority": "ca.json" } }],
      users: [{ name: "a", user: { "client-key": "key.json" } }],
    };
    await writeFile(file, "clusters: { a: { connect: { kubeconfig: kubeconfig.json } } }");
    for (const [name, object] of Object.entries({ kubeconfig, ca: widgetDefinition, key: widgetDefinition }))
      await writeFile(join(project, `${name}.json`), JSON.stringify(object));
    assert.deepEqual(await readConfigManifests(file), []);
  });
});

describe("each rule of the catalogue", () => {
  it("each rule of the catalogue has no mistakes", async () => {
    const found = await findRuleMistakes(await readCatalogue(), []);
    assert.ok(found.size > 50);
    assert.deepEqual(
      [...found.values()].flat().filter(({ isWarning }) => !isWarning),
      [],
    );
  });
});
