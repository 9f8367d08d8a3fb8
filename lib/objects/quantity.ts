/** Kubernetes quantities: `500m`, `1Gi`, `1e3`. */

// Nine digits of an exponent stay clear of where the API server overflows.
const shape = /^([+-]?)(\d*)(?:\.(\d*))?([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,9})?$/;

const decimal: Record<string, number> = { n: -9, u: -6, m: -3, k: 3, M: 6, G: 9, T: 12, P: 15, E: 18 };
const binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/** Where quantities end that have a binary suffix: 2^63-1. */
const binaryCap = (2n ** 63n - 1n) * 10n ** 9n;

/** Longer texts are taken for none, and exponents beyond for alike, so that no text takes long: not `1e999999999`, either. */
const longest = 1000;
const largestExponent = 1000;

/** Whether a text is a quantity. The API server takes a few without a digit, such as `m`, for 0; these are none here. */
export const isQuantity = (text: string): boolean => nanos(text) !== undefined;

/** Below 0 where one is smaller than the other, above where it is larger; both must be quantities. */
export const compareQuantities = (one: string, other: string): number => {
  const [first, second] = [one, other].map(nanos);
  if (first === undefined || second === undefined) throw new TypeError("only quantities can be compared");
  return first < second ? -1 : first > second ? 1 : 0;
};

/** A quantity in billionths, rounded away from zero as the API server rounds. */
const nanos = (text: string): bigint | undefined => {
  if (text.length > longest) return undefined;
  const [matched, sign, whole = "", fraction = "", suffix = ""] = shape.exec(text) ?? [];
  const digits = whole + fraction;
  if (matched === undefined || digits === "") return undefined;

  const power = binary.indexOf(suffix) + 1;
  const mantissa = BigInt(digits) * 1024n ** BigInt(power);
  const exponent = 9 - fraction.length + (decimal[suffix] ?? (power > 0 ? 0 : Number(suffix.slice(1))));
  const size = scaled(mantissa, exponent, digits.length);
  const capped = power > 0 && size > binaryCap ? binaryCap : size;
  return sign === "-" ? -capped : capped;
};

const scaled = (mantissa: bigint, exponent: number, digits: number): bigint => {
  if (exponent >= 0) return mantissa * 10n ** BigInt(Math.min(exponent, largestExponent));
  // A binary suffix adds at most 19 digits; to divide by more than there are gives the same.
  const divisor = 10n ** BigInt(Math.min(-exponent, digits + 19));
  return (mantissa + divisor - 1n) / divisor;
};
