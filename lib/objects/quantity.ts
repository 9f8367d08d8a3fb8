import { Failure } from "../failure.ts";

/** A Kubernetes quantity such as `500m`, `1Gi` or `1e3`: its exact amount and its notation. */
export interface Quantity {
  /** The amount in units of 10^-9. */
  readonly nanos: bigint;
  readonly notation: "decimal" | "binary" | "exponent";
  /** The text from which the quantity was parsed; absent for a computed quantity. */
  readonly text?: string;
}

// The form of a quantity: sign, integer, fraction and suffix. An exponent of more than nine digits overflows upstream.
const shape = /^([+-]?)(\d*)(?:\.(\d*))?([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,9})?$/;

/** The exponents of ten by suffix. */
const decimal: Record<string, number> = { n: -9, u: -6, m: -3, "": 0, k: 3, M: 6, G: 9, T: 12, P: 15, E: 18 };
const decimalSuffixes = Object.keys(decimal);
const binarySuffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/** The nanos of one unit. */
const unit = 10n ** 9n;

/** The largest quantity with a binary suffix: 2^63-1. */
const binaryCap = (2n ** 63n - 1n) * unit;

/** The most characters of a quantity. Longer texts are invalid here. */
const maxLength = 1000;
/** A larger exponent is replaced by this one, so that `1e999999999` is parsed fast. */
const maxExponent = 1000;

/**
 * Parses a quantity, and rounds it away from zero as the API server does; undefined if it is invalid. A few texts
 * without a digit, such as `m`, are invalid here, although the API server reads them as 0. Manifests may contain
 * numbers.
 */
export const parseQuantity = (written: string | number): Quantity | undefined => {
  const text = String(written);
  if (text.length > maxLength) return undefined;
  const [matched, sign, integer = "", fraction = "", suffix = ""] = shape.exec(text) ?? [];
  const digits = integer + fraction;
  if (matched === undefined || digits === "") return undefined;
  /** The power of 1024 that a binary suffix means: 2 for Mi, 0 for other suffixes. */
  const power = Math.max(binarySuffixes.indexOf(suffix), 0);
  const mantissa = BigInt(digits) * 1024n ** BigInt(power);
  // A suffix that is neither decimal nor binary is an exponent, such as e3.
  const suffixExponent = decimal[suffix] ?? (power > 0 ? 0 : Number(suffix.slice(1)));
  const size = multiplyByPowerOfTen(mantissa, 9 - fraction.length + suffixExponent);
  const capped = power > 0 && size > binaryCap ? binaryCap : size;
  const isFraction = capped > 0n && capped < unit;
  // As upstream, a binary quantity below one unit, such as 0.0005Ki, gets the decimal notation. Decimal suffixes have
  // at most one character; exponents, such as e3, have more.
  const notation = power > 0 && !isFraction ? "binary" : suffix.length > 1 && power === 0 ? "exponent" : "decimal";
  return { nanos: sign === "-" ? -capped : capped, notation, text };
};

const multiplyByPowerOfTen = (mantissa: bigint, exponent: number): bigint => {
  if (exponent >= 0) return mantissa * 10n ** BigInt(Math.min(exponent, maxExponent));
  // The divisor is limited, so that it is computed fast. A larger divisor gives the same result, because the mantissa
  // has at most `maxLength + 19` digits: a binary suffix multiplies it by at most 1024^6, which adds up to 19 digits.
  return divideRoundingUp(mantissa, 10n ** BigInt(Math.min(-exponent, maxLength + 19)));
};

const divideRoundingUp = (dividend: bigint, divisor: bigint): bigint =>
  (dividend + (dividend < 0n ? 1n - divisor : divisor - 1n)) / divisor;

/** Parses a quantity that was validated before, usually by the API server. Throws if it is invalid. */
export const requireQuantity = (written: string | number): Quantity => {
  const parsed = parseQuantity(written);
  if (parsed === undefined) throw new Failure(400, `${JSON.stringify(written)} is no quantity such as 500m or 1Gi`);
  return parsed;
};

export const zeroQuantity: Quantity = requireQuantity("0");

/** Reports whether a text is a quantity. */
export const isQuantity = (text: string): boolean => parseQuantity(text) !== undefined;

/** Returns -1 if the left quantity is smaller, 0 if both are equal, 1 if it is larger. Throws for an invalid text. */
export const compareQuantities = (left: Quantity | string, right: Quantity | string): number => {
  const [first, second] = [toNanos(left), toNanos(right)];
  return Number(first > second) - Number(first < second);
};

const toNanos = (quantity: Quantity | string) =>
  (typeof quantity === "string" ? requireQuantity(quantity) : quantity).nanos;

/** Adds two quantities. The sum has the notation of the first one, or of the second if the first is zero. */
export const addQuantities = (left: Quantity, right: Quantity): Quantity => {
  return { nanos: left.nanos + right.nanos, notation: (left.nanos === 0n ? right : left).notation };
};

/** Subtracts a quantity. The difference has the notation of the first one, or of the second if the first is zero. */
export const subtractQuantities = (left: Quantity, right: Quantity): Quantity =>
  addQuantities(left, { nanos: -right.nanos, notation: right.notation });

/** Returns a quantity rounded away from zero to whole units. */
export const roundUpToUnits = (quantity: Quantity): Quantity =>
  quantity.nanos % unit === 0n ? quantity : { nanos: roundToUnits(quantity) * unit, notation: quantity.notation };

/** Returns a quantity in whole units, rounded away from zero, as Go's `Value()` but without its overflow. */
export const roundToUnits = ({ nanos }: Quantity): bigint => divideRoundingUp(nanos, unit);

/** Returns a quantity in thousandths, rounded away from zero, as Go's `MilliValue()` but without its overflow. */
export const roundUpToThousandths = ({ nanos }: Quantity): bigint => divideRoundingUp(nanos, unit / 1000n);

/** Formats a quantity as Kubernetes does: a parsed one as it was written, a computed one in canonical form. */
export const formatQuantity = (quantity: Quantity): string => quantity.text ?? canonicalizeQuantity(quantity);

/** Returns a quantity in Kubernetes' canonical form: without a point, with the largest suffix of its notation. */
export const canonicalizeQuantity = ({ nanos, notation }: Quantity): string => {
  if (nanos === 0n) return "0";
  const isSmall = -1024n * unit < nanos && nanos < 1024n * unit;
  if (notation === "binary" && !isSmall && nanos % unit === 0n) {
    const [mantissa, power] = removeFactors(nanos / unit, 1024n, binarySuffixes.length - 1);
    return `${mantissa}${binarySuffixes[power]}`;
  }
  const maxPower = notation === "exponent" ? Number.POSITIVE_INFINITY : decimalSuffixes.length - 1;
  const [mantissa, power] = removeFactors(nanos, 1000n, maxPower);
  if (notation !== "exponent") return `${mantissa}${decimalSuffixes[power]}`;
  // The mantissa is in nanos times 1000^power. With the power 3, these are whole units, which have no exponent.
  return power === 3 ? `${mantissa}` : `${mantissa}e${3 * (power - 3)}`;
};

/** Divides a number by a factor as often as possible, at most `maxPower` times. Returns the quotient, and how often. */
const removeFactors = (number: bigint, factor: bigint, maxPower: number): [bigint, number] => {
  let [quotient, power] = [number, 0];
  for (; power < maxPower && quotient % factor === 0n; power++) quotient /= factor;
  return [quotient, power];
};
