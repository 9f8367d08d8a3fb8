import assert from "node:assert/strict";
import { suite, test } from "node:test";
import fc from "fast-check";
import { readRows } from "../../../test/rows.ts";
import {
  calculateWithExactFractions,
  compareDecimals,
  type ExactFraction,
  isExactFraction,
  parseDecimal,
  parseDecimalOrPercentage,
  parseDecimalOrQuantity,
} from "./decimals.ts";

const rows = readRows<{ equal: { text: string | number; equalText: string | number }[]; invalid: string[] }>(
  import.meta.filename,
);

const assertEqual = (left: ExactFraction | undefined, right: ExactFraction | undefined) => {
  assert.ok(left && right);
  assert.equal(compareDecimals(left, right), 0);
};

suite("an exact number", () => {
  for (const { text, equalText } of rows.equal)
    test(`${text} equals ${equalText}`, () => assertEqual(parseDecimal(text), parseDecimal(equalText)));

  for (const text of rows.invalid)
    test(`isn't ${JSON.stringify(text)}`, () => assert.equal(parseDecimal(text), undefined));

  test("an exact number has at most 1000 characters", () => {
    assert.equal(parseDecimal("9".repeat(1001)), undefined);
    assert.ok(parseDecimal("9".repeat(1000)));
  });

  test("an exact number can be a percentage", () => {
    assertEqual(parseDecimalOrPercentage("50%"), parseDecimal("0.5"));
    assertEqual(parseDecimalOrPercentage("12.5%"), parseDecimal("0.125"));
    assertEqual(parseDecimalOrPercentage(2), parseDecimal("2"));
    for (const text of ["%", "5%%", "% 5", "5 %"]) assert.equal(parseDecimalOrPercentage(text), undefined);
  });

  test("an exact number can be a quantity", () => {
    assertEqual(parseDecimalOrQuantity("1Gi"), parseDecimalOrQuantity(1073741824));
    assertEqual(parseDecimalOrQuantity("500m"), parseDecimalOrQuantity(0.5));
    assertEqual(parseDecimalOrQuantity("1e3"), parseDecimalOrQuantity("1k"));
    for (const value of ["web", "", "1 Gi", true, null, [1], {}])
      assert.equal(parseDecimalOrQuantity(value), undefined);
  });

  test("an exact number is distinguished from all JSON values", () => {
    assert.equal(isExactFraction(parseDecimal(1)), true);
    fc.assert(fc.property(fc.jsonValue(), (value) => !isExactFraction(value)));
    assert.equal(isExactFraction({ numerator: 1, denominator: 1 }), false);
  });

  test("an exact number is calculated like an integer of JavaScript", () => {
    const integer = fc.integer({ min: -1000, max: 1000 });
    const requireDecimal = (value: number): ExactFraction => parseDecimal(value) ?? assert.fail();
    fc.assert(
      fc.property(integer, integer, (left, right) => {
        const [first, second] = [requireDecimal(left), requireDecimal(right)];
        assertEqual(calculateWithExactFractions(first, "+", second), requireDecimal(left + right));
        assertEqual(calculateWithExactFractions(first, "-", second), requireDecimal(left - right));
        assertEqual(calculateWithExactFractions(first, "*", second), requireDecimal(left * right));
        const quotient = calculateWithExactFractions(first, "/", second);
        if (right === 0) assert.equal(quotient, undefined);
        else assertEqual(quotient && calculateWithExactFractions(quotient, "*", second), first);
        assert.ok(quotient === undefined || quotient.denominator > 0n);
        assert.equal(compareDecimals(first, second), Math.sign(left - right));
      }),
    );
    assert.equal(calculateWithExactFractions(requireDecimal(1), "%", requireDecimal(1)), undefined);
  });

  test("an exact number is not rounded in a sum", () => {
    const [first, second] = [parseDecimal("0.1"), parseDecimal("0.2")];
    assert.ok(first && second);
    assertEqual(calculateWithExactFractions(first, "+", second), parseDecimal("0.3"));
  });

  test("an exact number is compared like a number of JavaScript", () => {
    const number = fc.double({ noNaN: true, noDefaultInfinity: true });
    fc.assert(
      fc.property(number, number, (left, right) => {
        const [first, second] = [parseDecimal(left), parseDecimal(right)];
        assert.ok(first && second);
        assert.equal(compareDecimals(first, second), Number(left > right) - Number(left < right));
      }),
    );
  });
});
