import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import { readRows } from "../test/rows.ts";
import { createDraft } from "./core/patch.ts";
import { cloneDeep, deleteMember, hasMisreadKey, isSame, lookUp, setMemberToCopy } from "./json.ts";

const rows = readRows<{ path: (string | number)[]; expected: { value: unknown } | undefined }[]>(import.meta.filename);

const root = { list: [{ a: null }], "0": "key", nothing: null, __proto__x: 1 };

describe("lookUp", () => {
  for (const { path, expected } of rows)
    it(`finds ${JSON.stringify(expected)?.slice(0, 20)} at ${JSON.stringify(path)} of an object and of its draft`, () => {
      assert.deepEqual(lookUp(root, path), expected);
      assert.deepEqual(lookUp(createDraft(root).value, path), expected);
    });
});

describe("cloneDeep", () => {
  it("cloneDeep copies drafts, and copies __proto__ like any other key", () => {
    const value = JSON.parse('{"__proto__":{"a":[1,{"b":2}]}}');
    assert.equal(JSON.stringify(cloneDeep(createDraft(value).value)), JSON.stringify(value));
    assert.notEqual(cloneDeep(value), value);
  });
});

describe("setMemberToCopy and deleteMember", () => {
  it("setMemberToCopy and deleteMember report whether they changed anything", () => {
    const { value, changes } = createDraft({ a: { b: [1] } });
    assert.deepEqual(
      [setMemberToCopy(value, "a", { b: [1] }), deleteMember(value, "c"), deleteMember(value, "toString")],
      [false, false, false],
    );
    assert.deepEqual(changes(), []);
    assert.deepEqual(
      [setMemberToCopy(value, "a", { b: [2] }), setMemberToCopy(value, "__proto__", 1), deleteMember(value, "a")],
      [true, true, true],
    );
    assert.deepEqual(
      changes().map(({ op, path }) => `${op} ${path}`),
      ["remove /a", "add /__proto__"],
    );
  });
});

describe("hasMisreadKey", () => {
  // Some versions of V8 read a key with an escape as another key.
  const rows: [text: string, parsed: unknown, isMisread: boolean][] = [
    ['{"\\u0073pec":1}', { spec: 1 }, false],
    ['{"\\u0073pec":1}', { "\\u00": 1 }, true],
    ['[{"spec":1},{"\\u0073pec":1}]', [{ spec: 1 }, { "\\u00": 1 }], true],
    ['{"\\"":{"a":"\\":"}}', { '"': { a: '":' } }, false],
    ['{"\\"":1}', { "\\": 1 }, true],
  ];
  for (const [text, parsed, isMisread] of rows)
    it(`is ${isMisread} for ${text} read as ${JSON.stringify(parsed)}`, () =>
      assert.equal(hasMisreadKey(text, parsed), isMisread));
});

describe("isSame", () => {
  it("isSame agrees with isDeepStrictEqual on JSON values", () =>
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), (first, second) => {
        const [left, right] = [first, second].map((value) => JSON.parse(JSON.stringify(value)));
        assert.equal(isSame(left, right), isDeepStrictEqual(left, right));
        assert.ok(isSame(left, JSON.parse(JSON.stringify(left))));
      }),
    ));
  it("isSame compares keys such as __proto__ like other keys", () => {
    assert.equal(isSame(JSON.parse('{"__proto__":{}}'), {}), false);
    assert.equal(isSame({ a: 1 }, JSON.parse('{"__proto__":1}')), false);
    assert.equal(isSame({ constructor: 1 }, { toString: 1 }), false);
  });
  it("isSame distinguishes lists, maps and null", () => {
    assert.equal(isSame([], {}), false);
    assert.equal(isSame(null, {}), false);
    assert.equal(isSame({ a: undefined }, { b: undefined }), false);
  });
  it("isSame compares values that nest deeper than the call stack allows", () => {
    const parseNested = (inner: string) => JSON.parse(`${"[".repeat(100_000)}${inner}${"]".repeat(100_000)}`);
    assert.equal(isSame(parseNested("1"), parseNested("1")), true);
    assert.equal(isSame(parseNested("1"), parseNested("2")), false);
  });
});
