import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { createTestFolder } from "../../test/folders.ts";
import { Complaint } from "../cli/complaint.ts";
import { readCustomKind } from "./custom-kind.ts";

const buildDefinition = (spec: object) => ({
  apiVersion: "apiextensions.k8s.io/v1",
  kind: "CustomResourceDefinition",
  metadata: { name: "widgets.example.com" },
  spec: {
    group: "example.com",
    names: { kind: "Widget", plural: "widgets", singular: "widget" },
    versions: [{ name: "v1beta1" }, { name: "v1", storage: true }],
    ...spec,
  },
});

const folder = await createTestFolder();
let count = 0;
const read = async (...objects: object[]) => {
  const path = join(folder, `${count++}.yaml`);
  await writeFile(path, objects.map((object) => JSON.stringify(object)).join("\n---\n"));
  return readCustomKind(path);
};

describe("a file with a CustomResourceDefinition", () => {
  it("a rule gets the definition of a custom kind, and the types of its stored version", async () => {
    const openAPIV3Schema = { type: "object", properties: { size: { type: "integer", description: "Its size." } } };
    const versions = [{ name: "v1alpha1" }, { name: "v1", storage: true, schema: { openAPIV3Schema } }];
    const { files } = await read({ apiVersion: "v1", kind: "Namespace" }, buildDefinition({ versions }));
    assert.deepEqual(Object.keys(files), ["crd.yaml", "types.ts"]);
    assert.equal(
      files["types.ts"],
      `// The types of Widget in example.com/v1, made from crd.yaml.
import type { ObjectMeta } from "postern/kubernetes/meta/v1";

export interface Widget {
  apiVersion?: "example.com/v1";
  kind?: "Widget";
  metadata?: ObjectMeta;
  /** Its size. */
  size?: number;
}
`,
    );
  });

  it("a file with a CustomResourceDefinition for a kind Rule doesn't replace rule.ts, the code", async () => {
    const { files } = await read(buildDefinition({ names: { kind: "Rule", plural: "rules", singular: "rule" } }));
    assert.ok(!("rule.ts" in files));
  });

  it("a file with a CustomResourceDefinition doesn't copy the text of a reference into the types", async () => {
    const properties = { size: { $ref: "a.b };\nprocess.exit();interface C {" } };
    const schema = { openAPIV3Schema: { type: "object", properties } };
    const { files } = await read(buildDefinition({ versions: [{ name: "v1", storage: true, schema }] }));
    assert.match(files["types.ts"] ?? "", /^ {2}size\?: unknown;$/m);
  });

  const names = { kind: "Widget", plural: "widgets" };
  const withSchema = (openAPIV3Schema: unknown) => [{ name: "v1", storage: true, schema: { openAPIV3Schema } }];
  const refused: [what: string, objects: object[], sentence: string][] = [
    ["has none", [{ apiVersion: "v1", kind: "Namespace" }], "must have one CustomResourceDefinition, but it has 0"],
    ["has two", [buildDefinition({}), buildDefinition({})], "must have one CustomResourceDefinition, but it has 2"],
    [
      "has code for a group",
      [buildDefinition({ group: '"]}); process.exit()//' })],
      'must have a spec.group such as example.com, not "\\"]}); process.exit()//"',
    ],
    [
      "has a path for a name",
      [buildDefinition({ names: { ...names, plural: "../x" } })],
      'must have a spec.names.plural such as widgets, not "../x"',
    ],
    [
      "has no version that is stored",
      [buildDefinition({ versions: [{ name: "v1" }] })],
      "must have a version with storage: true and a name such as v1",
    ],
    [
      "has a list for a kind",
      [buildDefinition({ names: { ...names, kind: ["Widget"] } })],
      'must have a spec.names.kind such as Widget, not ["Widget"]',
    ],
    [
      "has a schema with other values",
      [buildDefinition({ versions: withSchema({ required: 5 }) })],
      "has a schema in version v1 that API servers refuse",
    ],
  ];
  for (const [what, objects, sentence] of refused)
    it(`that ${what} is refused`, () =>
      assert.rejects(read(...objects), (error) => {
        assert.ok(error instanceof Complaint);
        assert.ok(error.message.includes(`.yaml ${sentence}`), error.message);
        return true;
      }));
});
