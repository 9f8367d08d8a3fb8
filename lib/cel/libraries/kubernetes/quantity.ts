import { countReading } from "../../cost-formulas.ts";
import { declareFunction, declareMethod, type FunctionDeclaration } from "../../functions.ts";
import { bool, double, int, string, struct } from "../../types.ts";
import {
  createNoSuchOverloadError,
  EvaluationError,
  LibraryObject,
  toDouble,
  toInt,
  type Value,
} from "../../values.ts";
import { reportParsing } from "../errors.ts";
import { declareComparisons } from "./comparisons.ts";

/**
 * An exact number: `digits` times ten to the power of `exponent`. Upstream stores it in 64 bits or, with `isLarge`, as
 * a decimal of any length, even if it is small: `isInteger` and `asInteger` accept only the form with 64 bits. The
 * exponent affects the rounding to a double. Quantities of lib/objects lack form and exponent: they aren't used here.
 */
interface Amount {
  readonly digits: bigint;
  readonly exponent: number;
  readonly isLarge: boolean;
}

const type = struct("kubernetes.Quantity");

/** The value of the function `quantity`, or of a calculation with quantities. */
export class Quantity extends LibraryObject {
  readonly type = type;
  readonly amount: Amount;
  /** The text that was parsed; undefined for a sum or a difference. */
  readonly text: string | undefined;
  constructor(amount: Amount, text?: string) {
    super();
    this.amount = amount;
    this.text = text;
  }
  override toString(): string {
    const { digits, exponent } = this.amount;
    return this.text ?? (exponent === 0 ? `${digits}` : `${digits}e${exponent}`);
  }
  /** In upstream, a sum or a difference may be the left value of `==`, but not the right one. */
  equals(other: this): boolean {
    if (other.text === undefined) throw createNoSuchOverloadError();
    return compareAmounts(this.amount, other.amount) === 0;
  }
}

const form = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$";
const createNumberError = () => new EvaluationError("unable to parse numeric part of quantity");

const decimalSuffixes: Record<string, number> = { n: -9, u: -6, m: -3, "": 0, k: 3, M: 6, G: 9, T: 12, P: 15, E: 18 };
const binarySuffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/** The smallest exponent of a large amount: nanos. */
const minExponent = -9;
const maxBinary = 2n ** 63n - 1n;

/** The most characters of a quantity. Calculations with more would take longer than their CEL cost allows for. */
const maxLength = 10_000;
/** If the exponents of two amounts differ by more, their sum is the larger amount. */
const maxExponentGap = 10_000;
/** An amount with a larger exponent keeps it: it isn't converted to nanos (10 ** -9), which would take too long. */
const maxExponent = 1000;

/** Parses a quantity such as `1.5Gi`, `500m` or `1e3`, as upstream does. */
const parseAmount = (text: string): Amount => {
  const [number = "", integer = "", fraction = ""] = /^[+-]?(\d*)(?:\.(\d*))?/.exec(text) ?? [];
  const suffix = text.slice(number.length);
  if (text === "" || !/^[eEinumkKMGTP]*[-+]?\d*$/.test(suffix))
    throw new EvaluationError(`quantities must match the regular expression '${form}'`);
  if (text.length > maxLength) throw createNumberError();

  const power = Math.max(binarySuffixes.indexOf(suffix), 0);
  // Upstream's exponent has 32 bits, and may overflow.
  const exponent = ((power > 0 ? 0 : (decimalSuffixes[suffix] ?? parseExponent(suffix))) - fraction.length) | 0;
  const integerDigits = integer.replace(/^0+/, "") || "0";
  // Upstream uses 64 bits for up to 18 digits, and down to nanos; other amounts are large. With a binary suffix, an
  // amount is large if it has a fraction, or more than 14 digits, where each power of 1024 counts as three.
  const isLarge =
    power > 0
      ? fraction !== "" || integerDigits.length + 3 * power > 14
      : integerDigits.length + fraction.length > 18 || exponent < minExponent;
  // Upstream's parser of amounts with 64 bits accepts a number without digits.
  if (isLarge && integer + fraction === "") throw createNumberError();

  const digits = BigInt(integerDigits + fraction) * 1024n ** BigInt(power);
  const amount = isLarge ? roundLargeAmount(digits, exponent, power > 0) : { digits, exponent, isLarge };
  return number.startsWith("-") ? { ...amount, digits: -amount.digits } : amount;
};

const parseExponent = (suffix: string): number => {
  const [, written] = /^[eE]([-+]?\d+)$/.exec(suffix) ?? [];
  if (written === undefined || !isInt64(BigInt(written)))
    throw new EvaluationError("unable to parse quantity's suffix");
  // Upstream keeps 32 bits of the exponent.
  return Number(BigInt.asIntN(32, BigInt(written)));
};

/**
 * Rounds an amount up to nanos (10 ** -9), as upstream does if it doesn't store the amount in 64 bits, but as a decimal
 * of any length (`isLarge`). 0 and very large amounts stay unchanged. A binary suffix limits the result to 64 bits.
 */
const roundLargeAmount = (digits: bigint, exponent: number, isBinary: boolean): Amount => {
  if (digits === 0n || exponent > maxExponent) return { digits, exponent, isLarge: true };
  // The divisor is limited: each divisor that is larger than the digits has the same result, 1 nano. A text has at most
  // maxLength digits, and a binary suffix adds at most 19.
  const divisor = 10n ** BigInt(Math.min(Math.max(minExponent - exponent, 0), maxLength + 20));
  const nanos = (digits * 10n ** BigInt(Math.max(exponent - minExponent, 0)) + divisor - 1n) / divisor;
  return isBinary && nanos > maxBinary * 10n ** 9n
    ? { digits: maxBinary, exponent: 0, isLarge: true }
    : { digits: nanos, exponent: minExponent, isLarge: true };
};

const isInt64 = (number: bigint) => BigInt.asIntN(64, number) === number;

/** Converts the digits of two amounts so that both have the smaller of the two exponents. */
const alignDigits = (left: Amount, right: Amount): [left: bigint, right: bigint] => {
  const gap = left.exponent - right.exponent;
  const factor = 10n ** BigInt(Math.abs(gap));
  return gap > 0 ? [left.digits * factor, right.digits] : [left.digits, right.digits * factor];
};

/** Adds two amounts. The sum is large (not limited to 64 bits) if an amount is large, or if 64 bits are too few. */
const addAmounts = (left: Amount, right: Amount): Amount => {
  const isLarge = left.isLarge || right.isLarge;
  if (!isLarge && right.digits === 0n) return left;
  if (!isLarge && left.digits === 0n) return right;
  if (Math.abs(left.exponent - right.exponent) > maxExponentGap) {
    // An exact sum would have too many digits. Take the larger exponent's amount or, if that is a (large) 0, the other.
    const [major, minor] = left.exponent > right.exponent ? [left, right] : [right, left];
    return { ...(major.digits === 0n ? minor : major), isLarge: true };
  }
  const [first, second] = alignDigits(left, right);
  const sum = first + second;
  const exponent = Math.min(left.exponent, right.exponent);
  return { digits: sum, exponent, isLarge: isLarge || ![first, second, sum].every(isInt64) };
};

const subtractAmounts = (left: Amount, right: Amount): Amount => {
  // Upstream negates `right` in 64 bits, and adds it. This copies a fault: the negative of the smallest 64-bit number
  // overflows, to the same number. If an amount or the difference is large, upstream subtracts again without a limit.
  const negative = right.isLarge ? -right.digits : BigInt.asIntN(64, -right.digits);
  const difference = addAmounts(left, { ...right, digits: negative });
  return difference.isLarge ? addAmounts(left, { ...right, digits: -right.digits }) : difference;
};

const getSign = (digits: bigint): number => Number(digits > 0n) - Number(digits < 0n);

/** Returns -1, 0 or 1 if the left amount is smaller, equal or larger. */
const compareAmounts = (left: Amount, right: Amount): number => {
  const [sign, other] = [getSign(left.digits), getSign(right.digits)];
  if (sign !== other || sign === 0) return Math.sign(sign - other);
  // A text has at most maxLength digits, and a sum of two texts about maxExponentGap more. If the exponents differ by
  // twice as much, the amount with the larger exponent is larger, whatever the digits are.
  const gap = left.exponent - right.exponent;
  if (Math.abs(gap) > 2 * (maxLength + maxExponentGap)) return gap > 0 ? sign : -sign;
  const [first, second] = alignDigits(left, right);
  return getSign(first - second);
};

/** Returns an int64; undefined if the amount is longer, has a negative exponent, or is a decimal upstream (isLarge). */
const findInteger = ({ amount: { digits, exponent, isLarge } }: Quantity): bigint | undefined => {
  if (isLarge || exponent < 0) return undefined;
  if (digits === 0n) return 0n;
  // 10 ** 19 is already larger than any int64.
  const integer = digits * 10n ** BigInt(Math.min(exponent, 19));
  return isInt64(integer) ? integer : undefined;
};

/** Converts an amount to a double as Go does: by a multiplication, whose result isn't always the nearest double. */
const approximate = ({ amount: { digits, exponent } }: Quantity): Value =>
  toDouble(exponent === 0 ? Number(digits) : Number(digits) * computePowerOfTen(exponent));

/**
 * Returns what Go's `math.Pow10` returns. As Go, multiplies (or divides) two powers from tables, one of which has a
 * multiple of 32 as exponent. So the result may be rounded differently than the number `1e45`.
 */
const computePowerOfTen = (exponent: number): number => {
  if (exponent > 308) return Number.POSITIVE_INFINITY;
  if (exponent < -323) return 0;
  const rest = Math.abs(exponent) % 32;
  const tens = Number(`1e${exponent < 0 ? exponent + rest : exponent - rest}`);
  return exponent < 0 ? tens / Number(`1e${rest}`) : tens * Number(`1e${rest}`);
};

const parseQuantity = (text: string) => new Quantity(parseAmount(text), text);
/** Converts an int of CEL. As it has 64 bits, upstream doesn't store it as a decimal of any length (`isLarge`). */
const toQuantity = (int: number | bigint) => new Quantity({ digits: BigInt(int), exponent: 0, isLarge: false });
const compare = (left: Quantity, right: Quantity) => compareAmounts(left.amount, right.amount);
const add = (left: Quantity, right: Quantity) => new Quantity(addAmounts(left.amount, right.amount));
const subtract = (left: Quantity, right: Quantity) => new Quantity(subtractAmounts(left.amount, right.amount));

const requireInteger = (quantity: Quantity): Value => {
  const integer = findInteger(quantity);
  if (integer === undefined) throw new EvaluationError("cannot convert value to integer");
  return toInt(integer);
};

/** The functions of Kubernetes' CEL library for quantities such as 500m. */
export const quantityFunctions: readonly FunctionDeclaration[] = [
  declareFunction("quantity", "string_to_quantity", [string], type, parseQuantity, countReading),
  declareFunction("isQuantity", "is_quantity_string", [string], bool, reportParsing(parseQuantity), countReading),
  // In upstream, `sign` is a function. Upstream's documentation wrongly describes it as a method.
  declareFunction("sign", "quantity_sign", [type], int, ({ amount }: Quantity) => getSign(amount.digits)),
  declareMethod("asApproximateFloat", "quantity_get_float", [type], double, approximate),
  declareMethod("asInteger", "quantity_get_int", [type], int, requireInteger),
  declareMethod("isInteger", "quantity_is_integer", [type], bool, (value) => findInteger(value) !== undefined),
  declareMethod("add", "quantity_add", [type, type], type, add),
  declareMethod("add", "quantity_add_int", [type, int], type, (left, right) => add(left, toQuantity(right))),
  declareMethod("sub", "quantity_sub", [type, type], type, subtract),
  declareMethod("sub", "quantity_sub_int", [type, int], type, (left, right) => subtract(left, toQuantity(right))),
  ...declareComparisons("quantity", type, compare),
];
