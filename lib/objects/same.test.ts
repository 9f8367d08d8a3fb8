import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import { isSame } from "./same.ts";

describe("isSame", () => {
  it("is what Node finds equal, of JSON", () =>
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), (one, other) => {
        const [left, right] = [one, other].map((value) => JSON.parse(JSON.stringify(value)));
        assert.equal(isSame(left, right), isDeepStrictEqual(left, right));
        assert.ok(isSame(left, JSON.parse(JSON.stringify(left))));
      }),
    ));
  it("takes keys of prototypes for keys like any others", () => {
    assert.equal(isSame(JSON.parse('{"__proto__":{}}'), {}), false);
    assert.equal(isSame({ a: 1 }, JSON.parse('{"__proto__":1}')), false);
    assert.equal(isSame({ constructor: 1 }, { toString: 1 }), false);
  });
  it("tells lists from maps, and null from both", () => {
    assert.equal(isSame([], {}), false);
    assert.equal(isSame(null, {}), false);
    assert.equal(isSame({ a: undefined }, { b: undefined }), false);
  });
  it("compares what nests deeper than a function can call itself", () => {
    const nested = (inner: string) => JSON.parse(`${"[".repeat(100_000)}${inner}${"]".repeat(100_000)}`);
    assert.equal(isSame(nested("1"), nested("1")), true);
    assert.equal(isSame(nested("1"), nested("2")), false);
  });
});
