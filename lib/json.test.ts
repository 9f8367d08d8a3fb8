import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { cloned, drop, lookUp, put } from "./json.ts";
import { draft } from "./patch.ts";

const root = { list: [{ a: null }], "0": "key", nothing: null, __proto__x: 1 };

describe("lookUp", () => {
  const found: [path: (string | number)[], expected: { value: unknown } | undefined][] = [
    [[], { value: root }],
    [["list", 0, "a"], { value: null }],
    [["list", 1], undefined],
    [["list", -1], undefined],
    [["list", 0.5], undefined],
    [["list", "0"], undefined],
    [["list", "length"], undefined],
    [[0], undefined],
    [["0"], { value: "key" }],
    [["0", "length"], undefined],
    [["nothing", "a"], undefined],
    [["constructor"], undefined],
    [["__proto__", "constructor"], undefined],
  ];
  for (const [path, expected] of found)
    it(`finds ${JSON.stringify(expected)?.slice(0, 20)} at ${JSON.stringify(path)}, in a draft as well`, () => {
      assert.deepEqual(lookUp(root, path), expected);
      assert.deepEqual(lookUp(draft(root).value, path), expected);
    });
});

describe("cloned", () => {
  it("copies drafts, and __proto__ as a key", () => {
    const value = JSON.parse('{"__proto__":{"a":[1,{"b":2}]}}');
    assert.equal(JSON.stringify(cloned(draft(value).value)), JSON.stringify(value));
    assert.notEqual(cloned(value), value);
  });
});

describe("put and drop", () => {
  it("say whether there was something to do", () => {
    const { value, changes } = draft({ a: { b: [1] } });
    assert.deepEqual([put(value, "a", { b: [1] }), drop(value, "c"), drop(value, "toString")], [false, false, false]);
    assert.deepEqual(changes(), []);
    assert.deepEqual([put(value, "a", { b: [2] }), put(value, "__proto__", 1), drop(value, "a")], [true, true, true]);
    assert.deepEqual(
      changes().map(({ op, path }) => `${op} ${path}`),
      ["remove /a", "add /__proto__"],
    );
  });
});
