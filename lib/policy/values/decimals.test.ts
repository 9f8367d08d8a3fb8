import assert from "node:assert/strict";
import { suite, test } from "node:test";
import fc from "fast-check";
import {
  calculateDecimal,
  compareDecimals,
  type ExactFraction,
  isDecimal,
  parseDecimal,
  parseDecimalOrQuantity,
  parsePercentage,
} from "./decimals.ts";

const assertEqual = (one: ExactFraction | undefined, other: ExactFraction | undefined) => {
  assert.ok(one && other);
  assert.equal(compareDecimals(one, other), 0);
};

suite("an exact number", () => {
  const equal: [text: string | number, other: string | number][] = [
    ["5", 5],
    ["5.0", 5],
    ["+.5", 0.5],
    ["5.", 5],
    ["-1.50", -1.5],
    ["1e3", 1000],
    ["25E-2", 0.25],
    ["0.1", 0.1],
    [1e21, "1000000000000000000000"],
    [5e-324, "5e-324"],
    ["-0", 0],
  ];
  for (const [text, other] of equal)
    test(`${text} is ${other}`, () => assertEqual(parseDecimal(text), parseDecimal(other)));

  for (const text of [
    "",
    ".",
    "-",
    "e1",
    "1e",
    "0x1",
    "1_000",
    " 1",
    "1,5",
    "NaN",
    "Infinity",
    "1e9999",
    "1e999999999",
  ])
    test(`isn't ${JSON.stringify(text)}`, () => assert.equal(parseDecimal(text), undefined));

  test("has at most 1000 characters", () => {
    assert.equal(parseDecimal("9".repeat(1001)), undefined);
    assert.ok(parseDecimal("9".repeat(1000)));
  });

  test("can be a percentage", () => {
    assertEqual(parsePercentage("50%"), parseDecimal("0.5"));
    assertEqual(parsePercentage("12.5%"), parseDecimal("0.125"));
    assertEqual(parsePercentage(2), parseDecimal("2"));
    for (const text of ["%", "5%%", "% 5", "5 %"]) assert.equal(parsePercentage(text), undefined);
  });

  test("can be a quantity", () => {
    assertEqual(parseDecimalOrQuantity("1Gi"), parseDecimalOrQuantity(1073741824));
    assertEqual(parseDecimalOrQuantity("500m"), parseDecimalOrQuantity(0.5));
    assertEqual(parseDecimalOrQuantity("1e3"), parseDecimalOrQuantity("1k"));
    for (const value of ["web", "", "1 Gi", true, null, [1], {}])
      assert.equal(parseDecimalOrQuantity(value), undefined);
  });

  test("is distinguished from all JSON values", () => {
    assert.equal(isDecimal(parseDecimal(1)), true);
    fc.assert(fc.property(fc.jsonValue(), (value) => !isDecimal(value)));
    assert.equal(isDecimal({ numerator: 1, denominator: 1 }), false);
  });

  test("is calculated like numbers", () => {
    const integer = fc.integer({ min: -1000, max: 1000 });
    const decimal = (value: number): ExactFraction => parseDecimal(value) ?? assert.fail();
    fc.assert(
      fc.property(integer, integer, (one, other) => {
        const [first, second] = [decimal(one), decimal(other)];
        assertEqual(calculateDecimal(first, "+", second), decimal(one + other));
        assertEqual(calculateDecimal(first, "-", second), decimal(one - other));
        assertEqual(calculateDecimal(first, "*", second), decimal(one * other));
        const quotient = calculateDecimal(first, "/", second);
        if (other === 0) assert.equal(quotient, undefined);
        else assertEqual(quotient && calculateDecimal(quotient, "*", second), first);
        assert.ok(quotient === undefined || quotient.denominator > 0n);
        assert.equal(compareDecimals(first, second), Math.sign(one - other));
      }),
    );
    assert.equal(calculateDecimal(decimal(1), "%", decimal(1)), undefined);
  });

  test("is not rounded", () => {
    const [tenth, two] = [parseDecimal("0.1"), parseDecimal("0.2")];
    assert.ok(tenth && two);
    assertEqual(calculateDecimal(tenth, "+", two), parseDecimal("0.3"));
  });

  test("compares like numbers of JavaScript", () => {
    const number = fc.double({ noNaN: true, noDefaultInfinity: true });
    fc.assert(
      fc.property(number, number, (one, other) => {
        const [first, second] = [parseDecimal(one), parseDecimal(other)];
        assert.ok(first && second);
        assert.equal(compareDecimals(first, second), Number(one > other) - Number(one < other));
      }),
    );
  });
});
