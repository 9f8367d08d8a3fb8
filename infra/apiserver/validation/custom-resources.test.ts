import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createCustomKinds } from "./custom-resources.ts";

/** Rules, and whether an API server admits an object with null in its fields by them. */
const nullRules: [rule: string, isValid: boolean][] = [
  ["has(self.number)", false],
  ["self.list.exists(one, has(one.number))", false],
  ["has(self.map) && 'key' in self.map", true],
  ["self.list[0] == self.list[1]", true],
  ["self.list[0] == self.list[2]", false],
  ["dyn(self).size() == 3", true],
];

describe("a custom resource", () => {
  for (const [rule, isValid] of nullRules)
    it(`with null in its fields ${isValid ? "is" : "isn't"} valid by ${rule}`, () => {
      const number = { type: "integer", nullable: true };
      const items = { type: "object", properties: { number } };
      const properties = {
        number,
        map: { type: "object", additionalProperties: number },
        list: { type: "array", items },
      };
      const schema = { type: "object", properties, "x-kubernetes-validations": [{ rule }] };
      const versions = [{ name: "v1", schema: { openAPIV3Schema: { type: "object", properties: { spec: schema } } } }];
      const spec = { group: "example.com", names: { kind: "Thing" }, versions };
      const object = {
        apiVersion: "example.com/v1",
        kind: "Thing",
        metadata: { name: "a" },
        spec: { number: null, map: { key: null }, list: [{ number: null }, { number: null }, {}] },
      };
      const find = createCustomKinds([{ kind: "CustomResourceDefinition", spec }], undefined);
      const faults = find(object)?.validate(object, undefined, assert.fail) ?? [];
      assert.deepEqual(
        faults.map(({ field, message }) => `${field}: ${message}`),
        isValid ? [] : [`spec: Invalid value: failed rule: ${rule}`],
      );
    });

  it("is validated in a time that grows with the length of its lists", () => {
    const [texts, items] = [{ type: "string" }, { type: "object", properties: { a: { type: "integer" } } }];
    const list = { "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"] };
    const openAPIV3Schema = {
      type: "object",
      properties: {
        set: { type: "array", "x-kubernetes-list-type": "set", items: texts },
        map: { type: "array", ...list, items: { ...items, "x-kubernetes-validations": [{ rule: "oldSelf.a >= 0" }] } },
        wrong: { type: "array", items: { type: "integer" } },
      },
    };
    const spec = {
      group: "example.com",
      names: { kind: "Thing" },
      versions: [{ name: "v1", schema: { openAPIV3Schema } }],
    };
    const find = createCustomKinds([{ kind: "CustomResourceDefinition", spec }], undefined);
    const identity = { apiVersion: "example.com/v1", kind: "Thing", metadata: { name: "a" } };
    // An algorithm that compares each element with each other one would take hours.
    const numbers = Array.from({ length: 200_000 }, (_, index) => index);
    const set = [...numbers.map(String), "7", "7"];
    const map = numbers.map((a) => ({ a, other: { b: 1, c: 2 } }));
    const faults = find(identity)?.validate(
      { ...identity, set, map } as object,
      { ...identity, map } as object,
      assert.fail,
    );
    assert.deepEqual(
      faults?.map(({ field, message }) => `${field}: ${message}`),
      ['set[200000]: Duplicate value: "7"'],
    );
    const wrong = numbers.map(() => "");
    assert.equal(find(identity)?.validate({ ...identity, wrong } as object, undefined, assert.fail).length, 200_001);
  });
});
