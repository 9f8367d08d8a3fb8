import { Failure } from "../failure.ts";

/** A Kubernetes quantity such as `500m`, `1Gi` or `1e3`: its exact amount and its notation. */
export interface Quantity {
  readonly nanos: bigint;
  readonly notation: "decimal" | "binary" | "exponent";
  /** The text from which the quantity was parsed; absent for a computed quantity. */
  readonly text?: string;
}

// The form of a quantity. An exponent has at most nine digits: the API server would overflow only with more.
const shape = /^([+-]?)(\d*)(?:\.(\d*))?([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,9})?$/;

const decimal: Record<string, number> = { n: -9, u: -6, m: -3, "": 0, k: 3, M: 6, G: 9, T: 12, P: 15, E: 18 };
const decimalSuffixes = Object.keys(decimal);
const binarySuffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

const unit = 10n ** 9n;

/** The largest quantity with a binary suffix: 2^63-1. */
const binaryCap = (2n ** 63n - 1n) * unit;

/**
 * The most characters of a quantity, such as 500m. Longer texts are invalid, and larger exponents are cut, so that
 * parsing is fast even for `1e999999999`.
 */
const longest = 1000;
const largestExponent = 1000;

/**
 * Parses a quantity, rounded away from zero as in the API server; undefined if invalid. The API server reads a few
 * texts without a digit, such as `m`, as 0; here they are invalid. Manifests may contain numbers.
 */
export const parseQuantity = (written: string | number): Quantity | undefined => {
  const text = String(written);
  if (text.length > longest) return undefined;
  const [matched, sign, integer = "", fraction = "", suffix = ""] = shape.exec(text) ?? [];
  const digits = integer + fraction;
  if (matched === undefined || digits === "") return undefined;

  const power = Math.max(binarySuffixes.indexOf(suffix), 0);
  const mantissa = BigInt(digits) * 1024n ** BigInt(power);
  const exponent = 9 - fraction.length + (decimal[suffix] ?? (power > 0 ? 0 : Number(suffix.slice(1))));
  const size = multiplyByPowerOfTen(mantissa, exponent, digits.length);
  const capped = power > 0 && size > binaryCap ? binaryCap : size;
  const isFraction = capped > 0n && capped < unit;
  const notation = power > 0 && !isFraction ? "binary" : suffix.length > 1 && power === 0 ? "exponent" : "decimal";
  return { nanos: sign === "-" ? -capped : capped, notation, text };
};

const multiplyByPowerOfTen = (mantissa: bigint, exponent: number, digits: number): bigint => {
  if (exponent >= 0) return mantissa * 10n ** BigInt(Math.min(exponent, largestExponent));
  // The divisor is limited, so that it is computed fast: a binary suffix adds at most 19 digits, and a larger divisor
  // gives the same result.
  return divideRoundingUp(mantissa, 10n ** BigInt(Math.min(-exponent, digits + 19)));
};

const divideRoundingUp = (dividend: bigint, divisor: bigint): bigint =>
  (dividend + (dividend < 0n ? 1n - divisor : divisor - 1n)) / divisor;

/** Parses a quantity such as 500m that was validated before, usually by the API server; throws if it is invalid. */
export const requireQuantity = (written: string | number): Quantity => {
  const parsed = parseQuantity(written);
  if (parsed === undefined) throw new Failure(400, `${JSON.stringify(written)} is no quantity such as 500m or 1Gi`);
  return parsed;
};

export const zeroQuantity: Quantity = requireQuantity("0");

/** Reports whether a text is a quantity. */
export const isQuantity = (text: string): boolean => parseQuantity(text) !== undefined;

/** Compares two quantities: returns a number below, equal to or above 0. Texts must be quantities. */
export const compareQuantities = (left: Quantity | string, right: Quantity | string): number => {
  const [first, second] = [toNanos(left), toNanos(right)];
  return Number(first > second) - Number(first < second);
};

const toNanos = (quantity: Quantity | string) =>
  (typeof quantity === "string" ? requireQuantity(quantity) : quantity).nanos;

/** Adds quantities, in the notation of the first unless that is zero. */
export const addQuantities = (left: Quantity, right: Quantity): Quantity => {
  return { nanos: left.nanos + right.nanos, notation: (left.nanos === 0n ? right : left).notation };
};

/** Subtracts a quantity, in the notation of the first unless that is zero. */
export const subtractQuantities = (left: Quantity, right: Quantity): Quantity =>
  addQuantities(left, { nanos: -right.nanos, notation: right.notation });

/** Returns a quantity rounded away from zero to whole units. */
export const roundUpToUnits = (quantity: Quantity): Quantity =>
  quantity.nanos % unit === 0n ? quantity : { nanos: roundToUnits(quantity) * unit, notation: quantity.notation };

/** Returns whole units, rounded away from zero: Go's `Value()` without its overflow. */
export const roundToUnits = ({ nanos }: Quantity): bigint => divideRoundingUp(nanos, unit);

/** Returns a quantity in thousandths, rounded away from zero, as Go's `MilliValue()` but without its overflow. */
export const roundUpToThousandths = ({ nanos }: Quantity): bigint => divideRoundingUp(nanos, unit / 1000n);

/** Returns what Kubernetes shows: a parsed quantity as written, a computed one in canonical form. */
export const formatQuantity = (quantity: Quantity): string => quantity.text ?? canonicalizeQuantity(quantity);

/** Returns a quantity in Kubernetes' canonical form: no point, the largest suffix of its notation. */
export const canonicalizeQuantity = ({ nanos, notation }: Quantity): string => {
  if (nanos === 0n) return "0";
  const isSmall = -1024n * unit < nanos && nanos < 1024n * unit;
  if (notation === "binary" && !isSmall && nanos % unit === 0n) {
    const [mantissa, power] = removeFactors(nanos / unit, 1024n, binarySuffixes.length - 1);
    return `${mantissa}${binarySuffixes[power]}`;
  }
  const most = notation === "exponent" ? Number.POSITIVE_INFINITY : decimalSuffixes.length - 1;
  const [mantissa, power] = removeFactors(nanos, 1000n, most);
  if (notation !== "exponent") return `${mantissa}${decimalSuffixes[power]}`;
  return power === 3 ? `${mantissa}` : `${mantissa}e${3 * (power - 3)}`;
};

const removeFactors = (number: bigint, factor: bigint, most: number): [bigint, number] => {
  let [mantissa, power] = [number, 0];
  for (; power < most && mantissa % factor === 0n; power++) mantissa /= factor;
  return [mantissa, power];
};
