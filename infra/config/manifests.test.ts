import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, it } from "node:test";
import { rule } from "#lib/rule.ts";
import { toCatalogueRule } from "../../test/catalogue-rules.ts";
import { createTestFolder } from "../../test/folders.ts";
import { readConfig } from "../project/project.ts";

const folder = await createTestFolder();

/** Reads any objects. Reports two faults if there is a second document: one at a path in it, and one without a path. */
const read = (documents: readonly unknown[]) => {
  const path = ["spec", "rules", 1, "missing"];
  const faults = documents.length < 2 ? [] : [{ sentence: "is wrong", document: 1, path }, "has no place"];
  return { objects: documents.filter((document) => document !== null) as object[], faults };
};
const reading = rule({
  summary: "Reads.",
  match: [],
  settings: { policies: [] as object[] },
  manifests: { policies: read },
  validate() {},
});

const buildObject = (kind: string) => ({ apiVersion: "v1", kind });

const readPolicies = async (policies: string, project = folder) => {
  const file = join(project, "postern.yaml");
  await writeFile(file, `rules:\n  reading:\n    settings:\n      policies: ${policies}\n`);
  const { clusters } = await readConfig(file, [toCatalogueRule("reading", reading)]);
  return Object(clusters.get("local")?.rules.get("reading")?.settings).policies;
};

describe("objects of a setting", () => {
  it("objects of a setting are read from the files of a folder", async () => {
    await mkdir(join(folder, "good"));
    await writeFile(join(folder, "good/a.yaml"), "# first\napiVersion: v1\nkind: A\n");
    await writeFile(join(folder, "good/b.json"), '{ "apiVersion": "v1", "kind": "BList", "items": [{}] }');
    assert.deepEqual(await readPolicies("good"), [buildObject("A"), buildObject("B")]);
    assert.deepEqual(await readPolicies("[good/a.yaml, { kind: C }]"), [buildObject("A"), { kind: "C" }]);
  });

  it("objects of a setting have the keys that << merges", async () => {
    await writeFile(
      join(folder, "merged.yaml"),
      "apiVersion: v1\nkind: A\nfirst: &first { a: 1 }\nsecond: { <<: *first, b: 2 }\n",
    );
    assert.deepEqual(await readPolicies("merged.yaml"), [
      { ...buildObject("A"), first: { a: 1 }, second: { a: 1, b: 2 } },
    ]);
  });

  it("objects of a setting are refused with the file, the line and the column of a fault", async () => {
    await writeFile(
      join(folder, "bad.yaml"),
      ["apiVersion: v1\nkind: A", "apiVersion: v1\nkind: B\nspec:\n  rules:\n    - first\n    - second: 1\n"].join(
        "\n---\n",
      ),
    );
    // The rule `reading` reports two faults in a file with two objects. One is at spec.rules.1.missing of the second
    // object, where the file has nothing, so its position is that of spec.rules.1. The other one has no position.
    const place = "postern.yaml:4 rules.reading.settings.policies bad.yaml";
    await assert.rejects(readPolicies("bad.yaml"), {
      message: `${place}:9:7: is wrong\n${place}: has no place`,
    });
  });

  for (const [what, policies, files] of [
    ["a folder", "team/prod", ["team/prod/wrong.yaml", "team/prod/broken.yaml"]],
    ["a file", "team/prod/wrong.yaml", ["team/prod/wrong.yaml"]],
    ["a pattern", '"team/*/wrong.yaml"', ["team/prod/wrong.yaml"]],
    ["a folder outside of the project", "../outside", ["../outside/wrong.yaml"]],
  ] as const)
    it(`objects of a setting that names ${what} are refused with the path from postern.yaml's folder`, async () => {
      const project = await createTestFolder();
      const inner = join(project, "inner");
      await mkdir(inner);
      for (const file of files) {
        await mkdir(dirname(join(inner, file)), { recursive: true });
        const text = "apiVersion: v1\nkind: A\n---\napiVersion: v1\nkind: B\n";
        await writeFile(join(inner, file), file.includes("broken") ? "kind: [" : text);
      }
      const place = "postern.yaml:4 rules.reading.settings.policies";
      const [broken] = files.filter((file) => file.includes("broken"));
      await assert.rejects(readPolicies(policies, inner), ({ message }: Error) => {
        const [first = ""] = message.split("\n");
        if (broken) assert.ok(first.startsWith(`${place} ${broken}:1 is no YAML`), first);
        else assert.equal(first, `${place} ${files[0]}:4:1: is wrong`);
        return true;
      });
    });
});
