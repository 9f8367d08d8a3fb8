import { isMap, isTextOrNumber } from "../../json.ts";
import { parseQuantity } from "../../objects/quantity.ts";

/** An exact fraction with a positive denominator. No value from JSON looks like one, because JSON has no bigint. */
export interface ExactFraction {
  readonly numerator: bigint;
  readonly denominator: bigint;
}

// Longer numbers and larger exponents are not parsed: to calculate with `1e999999999` would take too long.
const maximumLength = 1000;
const maximumExponent = 1000;

const decimalPattern = /^([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d{1,9}))?$/;

/** Parses a decimal number such as `-1.5e3`; undefined if it is invalid. */
export const parseDecimal = (written: string | number): ExactFraction | undefined => {
  const text = String(written);
  if (text.length > maximumLength) return undefined;
  const [matched, sign, integer = "", fraction = "", exponent = "0"] = decimalPattern.exec(text) ?? [];
  const power = Number(exponent) - fraction.length;
  if (matched === undefined || integer + fraction === "" || Math.abs(Number(exponent)) > maximumExponent)
    return undefined;
  const digits = BigInt(`${integer}${fraction}`);
  const signed = sign === "-" ? -digits : digits;
  return power < 0
    ? { numerator: signed, denominator: 10n ** BigInt(-power) }
    : { numerator: signed * 10n ** BigInt(power), denominator: 1n };
};

/** Parses a decimal or a percentage: `50%` is one half. */
export const parseDecimalOrPercentage = (written: string | number): ExactFraction | undefined => {
  const text = String(written);
  if (!text.endsWith("%")) return parseDecimal(text);
  const parsed = parseDecimal(text.slice(0, -1));
  return parsed && { ...parsed, denominator: parsed.denominator * 100n };
};

/** Converts a value to a number. A text may be a decimal or a quantity such as `500m`. Otherwise, returns undefined. */
export const parseDecimalOrQuantity = (value: unknown): ExactFraction | undefined => {
  if (isExactFraction(value)) return value;
  if (!isTextOrNumber(value)) return undefined;
  const quantity = parseDecimal(value) ?? parseQuantity(value);
  return quantity && "nanos" in quantity ? { numerator: quantity.nanos, denominator: 10n ** 9n } : quantity;
};

export const isExactFraction = (value: unknown): value is ExactFraction =>
  isMap(value) && typeof value.denominator === "bigint";

export const compareDecimals = (left: ExactFraction, right: ExactFraction): number => {
  const [first, second] = [left.numerator * right.denominator, right.numerator * left.denominator];
  return Number(first > second) - Number(first < second);
};

const multiply = (left: ExactFraction, right: ExactFraction): ExactFraction => ({
  numerator: left.numerator * right.numerator,
  denominator: left.denominator * right.denominator,
});

const add = (left: ExactFraction, right: ExactFraction): ExactFraction => ({
  numerator: left.numerator * right.denominator + right.numerator * left.denominator,
  denominator: left.denominator * right.denominator,
});

/** Calculates with `+`, `-`, `*` or `/`. Returns undefined for a division by zero or an unknown operation. */
export const calculateWithExactFractions = (
  left: ExactFraction,
  operation: unknown,
  right: ExactFraction,
): ExactFraction | undefined => {
  const { numerator, denominator } = right;
  if (operation === "+") return add(left, right);
  if (operation === "-") return add(left, { numerator: -numerator, denominator });
  if (operation === "*") return multiply(left, right);
  if (operation !== "/" || numerator === 0n) return undefined;
  const sign = numerator < 0n ? -1n : 1n;
  return multiply(left, { numerator: sign * denominator, denominator: sign * numerator });
};
