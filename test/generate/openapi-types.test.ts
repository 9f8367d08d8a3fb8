import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { ObjectSchema } from "../../infra/project/object-types.ts";
import { buildTypeFiles } from "./openapi-types.ts";

const refer = (definition: string) => ({ $ref: `#/definitions/${definition}` });

/** Returns the lines of a generated file, without its heading. */
const print = (definitions: Record<string, ObjectSchema>, file = "apps/v1.ts") =>
  buildTypeFiles({ definitions }).get(file)?.split("\n").slice(2).join("\n").trimEnd();

/** Returns the lines of a field in a generated type, without the first and the last line of the type. */
const printField = (field: ObjectSchema) =>
  print({ "io.k8s.api.apps.v1.Spec": { properties: { field } } })
    ?.split("\n")
    .slice(1, -1)
    .join("\n");

// Each title says what the type or the comment of the printed field is.
describe("the type of a field", () => {
  const rows: [name: string, field: ObjectSchema, printed: string][] = [
    ["is a string", { type: "string" }, "  field?: string;"],
    ["is a number", { type: "integer", format: "int64" }, "  field?: number;"],
    ["is a list", { type: "array", items: { type: "integer" } }, "  field?: number[];"],
    ["is a map", { type: "object", additionalProperties: { type: "string" } }, "  field?: Record<string, string>;"],
    ["is another type", refer("io.k8s.api.apps.v1.Spec"), "  field?: Spec;"],
    ["is any object", { type: "object" }, "  field?: object;"],
    ["is unknown", {}, "  field?: unknown;"],
    ["is of an unknown type", { type: "constructor" }, "  field?: unknown;"],
    ["is null, too", { type: "string", nullable: true }, "  field?: string | null;"],
    ["is a number or a text", { "x-kubernetes-int-or-string": true }, "  field?: number | string;"],
    [
      "is a list of numbers or texts",
      { type: "array", items: { "x-kubernetes-int-or-string": true } },
      "  field?: (number | string)[];",
    ],
    [
      "has any fields",
      { type: "object", "x-kubernetes-preserve-unknown-fields": true },
      "  field?: Record<string, unknown>;",
    ],
    [
      "has fields of its own",
      { type: "object", required: ["a-b"], properties: { "a-b": { type: "string" }, c: { properties: { d: {} } } } },
      '  field?: {\n    "a-b": string;\n    c?: {\n      d?: unknown;\n    };\n  };',
    ],
    [
      "has the first sentence of its description",
      { type: "string", description: "The name (e.g. web, i.e. a label). More is elsewhere.\n\nPossible values:" },
      "  /** The name (e.g. web, i.e. a label). */\n  field?: string;",
    ],
    [
      "has the first two sentences of its description if the first is a single word",
      { type: "string", description: "Deprecated. Use another field. It is ignored" },
      "  /** Deprecated. Use another field. */\n  field?: string;",
    ],
    [
      "has a description in which the end of a comment is escaped",
      { type: "string", description: "A pattern such as a/*/b" },
      "  /** A pattern such as a/*\\/b */\n  field?: string;",
    ],
    [
      "has a long sentence in several lines",
      { type: "string", description: "word ".repeat(25) },
      `  /**\n   * ${"word ".repeat(23)}\n   * word word\n   */\n  field?: string;`.replaceAll(/ +$/gm, ""),
    ],
  ];
  for (const [name, field, printed] of rows) it(name, () => assert.equal(printField(field), printed));
});

describe("the types of Kubernetes objects", () => {
  it("the types of Kubernetes objects require what the API requires, and state apiVersion and kind", () => {
    const deployment = {
      required: ["spec"],
      properties: { spec: { type: "object" }, kind: { type: "string" }, apiVersion: { type: "string" } },
      "x-kubernetes-group-version-kind": [{ group: "apps", version: "v1", kind: "Deployment" }],
    };
    assert.equal(
      print({ "io.k8s.api.apps.v1.Deployment": deployment }),
      'export interface Deployment {\n  apiVersion?: "apps/v1";\n  kind?: "Deployment";\n  spec: object;\n}',
    );
  });

  it("the types of Kubernetes objects have any string as apiVersion for an object of several groups", () => {
    const options = {
      properties: { apiVersion: { type: "string" } },
      "x-kubernetes-group-version-kind": ["v1", "v2"].map((version) => ({ group: "", version, kind: "DeleteOptions" })),
    };
    assert.equal(
      print({ "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions": options }, "meta/v1.ts"),
      "export interface DeleteOptions {\n  apiVersion?: string;\n}",
    );
  });

  it("the types of Kubernetes objects have a file for each stable version, and for versions that these name", () => {
    const files = buildTypeFiles({
      definitions: {
        "io.k8s.api.batch.v1.JobSpec": {
          properties: {
            group: refer("io.k8s.api.scheduling.v1alpha3.Group"),
            size: refer("io.k8s.apimachinery.pkg.api.resource.Quantity"),
          },
        },
        "io.k8s.api.scheduling.v1alpha3.Group": { type: "object" },
        "io.k8s.api.batch.v1beta1.JobSpec": { type: "object" },
        "io.k8s.apimachinery.pkg.api.resource.Quantity": { type: "string" },
        "io.k8s.apimachinery.pkg.version.Info": { type: "object" },
      },
    });
    assert.deepEqual([...files.keys()], ["batch/v1.ts", "meta/v1.ts", "scheduling/v1alpha3.ts"]);
    const imports = files.get("batch/v1.ts")?.split("\n").slice(2, 4);
    assert.deepEqual(imports, [
      'import type { Quantity } from "../meta/v1.ts";',
      'import type { Group } from "../scheduling/v1alpha3.ts";',
    ]);
  });
});
