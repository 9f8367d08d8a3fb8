import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { parse } from "yaml";
import { freezeDeep } from "../../json.ts";
import { ApplyConfigurationError, applyConfiguration } from "./merge.ts";
import { findSchema } from "./schemas.ts";

interface Row {
  name: string;
  live?: unknown;
  patch: unknown;
  becomes?: unknown;
  refused?: string;
}

const { schema, rows }: { schema: object; rows: Row[] } = parse(
  readFileSync(new URL("merge.test.yaml", import.meta.url), "utf8"),
);

const definition = {
  spec: {
    group: "example.org",
    names: { kind: "Thing" },
    versions: [{ name: "v1", served: true, schema: { openAPIV3Schema: schema } }],
  },
};
const kind = { group: "example.org", version: "v1", kind: "Thing" };
const header = { apiVersion: "example.org/v1", kind: "Thing" };

const readValue = (value: unknown) => (typeof value === "string" ? JSON.parse(value) : value);

describe("a patch of an ApplyConfiguration", () => {
  const kindSchema = findSchema(kind, [definition]);
  assert.ok(kindSchema);
  for (const { name, live = {}, patch, becomes, refused } of rows)
    it(name, () => {
      const object = freezeDeep({ ...header, spec: readValue(live) });
      const apply = () => applyConfiguration(kindSchema, object, freezeDeep({ spec: readValue(patch) }));
      if (refused === undefined) assert.deepEqual(apply(), { ...header, spec: readValue(becomes) });
      else assert.throws(apply, new ApplyConfigurationError(refused));
    });

  it("an ApplyConfiguration is merged into a list in linear time, so each element is read a few times", () => {
    let reads = 0;
    const ports = Array.from({ length: 1000 }, (_, index) => ({
      get port() {
        reads++;
        return index;
      },
    }));
    const object = { ...header, spec: { ports } };
    applyConfiguration(kindSchema, object, { spec: { ports: ports.toReversed() } });
    assert.ok(reads <= 20 * ports.length, `${reads}`);
  });
});

describe("the schema of a kind", () => {
  it("the schema of a Pod merges containers by their names, and refuses changes of args, which are atomic", () => {
    const pod = findSchema({ group: "", version: "v1", kind: "Pod" }, []);
    assert.ok(pod);
    const object = {
      apiVersion: "v1",
      kind: "Pod",
      spec: { containers: [{ name: "web", image: "web:1", env: [{ name: "A", value: "b" }] }] },
    };
    const containers = [
      { name: "proxy", image: "proxy:1" },
      { name: "web", ports: [{ containerPort: 80 }] },
    ];
    assert.deepEqual(applyConfiguration(pod, object, { spec: { containers } }).spec, {
      containers: [
        { name: "proxy", image: "proxy:1" },
        { name: "web", image: "web:1", env: [{ name: "A", value: "b" }], ports: [{ containerPort: 80 }] },
      ],
    });
    assert.throws(
      () => applyConfiguration(pod, object, { spec: { containers: [{ name: "web", args: ["a"] }] } }),
      new ApplyConfigurationError(
        "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.containers[0].args",
      ),
    );
  });

  it("findSchema finds no schema for versions that no CustomResourceDefinition serves", () => {
    assert.equal(findSchema({ ...kind, version: "v2" }, [definition]), undefined);
    assert.equal(findSchema(kind, []), undefined);
  });
});
