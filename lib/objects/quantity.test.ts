import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { Failure } from "#lib/failure.ts";
import answers from "../../test/fixtures/quantities.json" with { type: "json" };
import { readRows } from "../../test/rows.ts";
import {
  addQuantities,
  canonicalizeQuantity,
  compareQuantities,
  formatQuantity,
  isQuantity,
  parseQuantity,
  requireQuantity,
  roundToUnits,
  roundUpToThousandths,
  roundUpToUnits,
  subtractQuantities,
} from "./quantity.ts";

const rows = readRows<{
  valid: string[];
  invalid: string[];
  comparisons: { left: string; sign: "<" | "=" | ">"; right: string }[];
}>(import.meta.filename);

describe("a quantity", () => {
  for (const text of rows.valid) it(`can be ${text}`, () => assert.ok(isQuantity(text)));

  for (const text of [...rows.invalid, "1".repeat(1001)])
    it(`can't be ${JSON.stringify(text.slice(0, 20))}`, () => assert.ok(!isQuantity(text)));

  for (const { left, sign, right } of rows.comparisons)
    it(`compares: ${left} ${sign} ${right}`, () => {
      const expected = { "<": -1, "=": 0, ">": 1 }[sign];
      assert.equal(compareQuantities(left, right), expected);
      assert.equal(compareQuantities(right, left), 0 - expected);
    });

  it("a quantity is formatted as it was written, or in canonical form if it was computed", () => {
    assert.equal(formatQuantity(requireQuantity("1.500")), "1.500");
    assert.equal(formatQuantity(addQuantities(requireQuantity("1.500"), requireQuantity("0"))), "1500m");
    assert.equal(formatQuantity(addQuantities(requireQuantity("0"), requireQuantity("1536Mi"))), "1536Mi");
  });

  it("a difference has the notation of its first quantity, unless that is 0; roundUpToUnits rounds away from 0", () => {
    const subtract = (left: string, right: string) =>
      formatQuantity(subtractQuantities(requireQuantity(left), requireQuantity(right)));
    assert.deepEqual(
      [subtract("2Gi", "1G"), subtract("1e3", "1500"), subtract("0", "1Ki"), subtract("1", "1")],
      ["1147483648", "-500", "-1Ki", "0"],
    );
    const round = (text: string) => formatQuantity(roundUpToUnits(requireQuantity(text)));
    assert.deepEqual([round("1500m"), round("1.5Ki"), round("-1500m"), round("1e-3")], ["2", "1.5Ki", "-2", "1"]);
  });

  it("a quantity has no larger suffix than E or Ei", () => {
    assert.equal(canonicalizeQuantity(requireQuantity("1000000E")), "1000000E");
    const many = Array.from({ length: 256 }, () => requireQuantity("4Ei"));
    assert.equal(formatQuantity(many.reduce(addQuantities)), "1024Ei");
  });

  it("a quantity may be a number instead of a text, but not NaN", () => {
    assert.equal(formatQuantity(requireQuantity(1.5)), "1.5");
    assert.equal(canonicalizeQuantity(requireQuantity(1.5)), "1500m");
    assert.equal(parseQuantity(Number.NaN), undefined);
  });

  it("a quantity can't be compared with other text", () => assert.throws(() => compareQuantities("1", "one"), Failure));

  it("a quantity is parsed in linear time, even if long and malformed", () => {
    const unit = fc.constantFrom("0", "1", "9", ".", "+", "e", "E", "i", "m");
    fc.assert(
      fc.property(
        unit,
        unit,
        fc.constantFrom(400, 1_000_000),
        fc.constantFrom("", "m", "Ei", "e999999999", "!"),
        (first, second, times, end) => {
          const hostile = first.repeat(times) + second.repeat(times) + end;
          const start = performance.now();
          const parsed = parseQuantity(hostile);
          if (parsed) canonicalizeQuantity(addQuantities(parsed, requireQuantity("1e999999999")));
          assert.ok(performance.now() - start < 5000, "with backtracking, it takes minutes");
        },
      ),
      { numRuns: 200 },
    );
  });
});

// The program in test/quantities prints these results of apimachinery: `go run . > ../fixtures/quantities.json`.
describe("a quantity of apimachinery", () => {
  for (const { text, ...answer } of answers.quantities)
    it(`can be ${text}`, () => {
      const parsed = requireQuantity(text);
      const actual = {
        canonical: canonicalizeQuantity(parsed),
        value: `${roundToUnits(parsed)}`,
        milli: `${roundUpToThousandths(parsed)}`,
      };
      for (const [form, expected] of Object.entries(answer))
        if (expected !== null) assert.equal(Reflect.get(actual, form), expected, form);
      assert.equal(compareQuantities(canonicalizeQuantity(parsed), parsed), 0, "its canonical form is the same");
    });

  for (const text of answers.none)
    it(`can't be ${JSON.stringify(text)}`, () => assert.equal(parseQuantity(text), undefined));

  for (const { one: left, other: right, sum, cmp } of answers.pairs)
    it(`adds up and compares: ${left} and ${right}`, () => {
      assert.equal(canonicalizeQuantity(addQuantities(requireQuantity(left), requireQuantity(right))), sum);
      assert.equal(compareQuantities(left, right), cmp);
    });
});
