import { canonicalizeQuantity, parseQuantity, type Quantity, roundUpToThousandths } from "#lib/objects/quantity.ts";

const quantityPattern = /^[+-]?0*(\d*)(?:\.(\d*))?([numkMGTPE]?|[KMGTPE]i|[eE][+-]?\d+)$/;
const decimal: Record<string, number> = { n: -9, u: -6, m: -3, "": 0, k: 3, M: 6, G: 9, T: 12, P: 15, E: 18 };
const binary: Record<string, number> = { Ki: 10, Mi: 20, Gi: 30, Ti: 40, Pi: 50, Ei: 60 };

/**
 * Returns a function that remembers results for short texts: manifests repeat a few quantities, such as `100m`. For a
 * text of 13 characters or more, V8 could keep the whole file in memory of which the text is a part.
 */
const rememberResults = (normalize: (text: string) => string | undefined) => {
  const results = new Map<string, string>();
  return (quantity: string | number): string | undefined => {
    const text = String(quantity).trim();
    const known = results.get(text);
    if (known !== undefined) return known;
    const result = normalize(text);
    if (result !== undefined && text.length <= 12 && results.size < 10_000) results.set(text, result);
    return result;
  };
};

/**
 * Returns a quantity as apimachinery writes it: unchanged if apimachinery takes the text for canonical (also `1.500`),
 * otherwise in canonical form; undefined if it is invalid.
 */
export const normalizeQuantity = rememberResults((text) => {
  const amount = parseQuantity(text);
  const isCanonical = findExponentOfCanonical(text) !== undefined;
  return amount && (isCanonical ? text : canonicalizeQuantity(amount));
});

/**
 * Returns an amount of a container's resource as the API server writes it (see `normalizeQuantity`), but rounded up
 * to thousandths.
 */
export const normalizeResourceAmount = rememberResults((text) => {
  const amount = parseQuantity(text);
  if (amount === undefined) return undefined;
  const exponent = findExponentOfCanonical(text);
  const isCanonicalInThousandths = exponent !== undefined && exponent >= -3;
  return isCanonicalInThousandths ? text : roundToThousandths(amount);
});

export const formatRoundedResourceAmount = (amount: Quantity): string =>
  (amount.text === undefined ? undefined : normalizeResourceAmount(amount.text)) ?? roundToThousandths(amount);

const roundToThousandths = (amount: Quantity): string =>
  canonicalizeQuantity({ ...amount, nanos: roundUpToThousandths(amount) * 1_000_000n });

/**
 * Returns the decimal exponent of a quantity's last digit, such as -3 for `1.500` and `5m`, and 0 with a binary suffix;
 * undefined if apimachinery doesn't take the text for canonical. The limits are those of apimachinery's ParseQuantity,
 * which only estimates from the digits whether the value fits an int64.
 */
const findExponentOfCanonical = (text: string): number | undefined => {
  if (text === "0") return 0;
  const [, integer = "", fraction = "", suffix = ""] = quantityPattern.exec(text) ?? [];
  const digits = (integer || "0") + fraction;
  const powerOfTwo = binary[suffix];
  if (powerOfTwo !== undefined) {
    // Ten binary digits are about three decimal digits.
    const decimalDigits = digits.length + Math.trunc((powerOfTwo * 3) / 10);
    const fits = fraction === "" && decimalDigits <= 14;
    // A multiple of 1024 has another suffix in canonical form. Like apimachinery, this tests only for a multiple of 8.
    return fits && Number(digits) % 8 !== 0 ? 0 : undefined;
  }
  const exponent = (decimal[suffix] ?? Number(suffix.slice(1))) - fraction.length;
  const fits = digits.length <= 18 && exponent >= -9;
  // As apimachinery does, this accepts 1.500, although 1500m is canonical, because the exponent -3 is a multiple of 3.
  // It doesn't accept 1.5 (canonical: 1500m), 1000 (canonical: 1k) and 0.500 (canonical: 500m).
  return fits && exponent % 3 === 0 && !digits.endsWith("000") && !digits.startsWith("0") ? exponent : undefined;
};

/** Matches a time in RFC 3339, and captures its fraction of a second. */
const timePattern = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,](\d+))?(?:Z|[+-]\d\d:\d\d)$/;

export const normalizeTime = (text: string): string | undefined => {
  const date = parseDate(text);
  return date && `${date.toISOString().slice(0, 19)}Z`;
};

/** Returns a time in UTC with microseconds; undefined unless the text has six digits of them. */
export const normalizeMicroTime = (text: string): string | undefined => {
  const [, fraction = ""] = timePattern.exec(text) ?? [];
  const date = fraction.length === 6 ? parseDate(text) : undefined;
  return date && `${date.toISOString().slice(0, 19)}.${fraction}Z`;
};

/** Parses a time without its fraction of a second, because the API server stores a time in whole seconds. */
const parseDate = (text: string): Date | undefined => {
  const date = new Date(timePattern.test(text) ? text.replace(/[.,]\d+/, "") : Number.NaN);
  return Number.isNaN(date.getTime()) ? undefined : date;
};

/** Returns a bytes field as base64 without line breaks; undefined if invalid. As in Go, a list of numbers is valid. */
export const normalizeBase64 = (value: unknown): string | undefined => {
  if (Array.isArray(value)) return value.every(isByte) ? Buffer.from(value).toString("base64") : undefined;
  if (typeof value !== "string") return undefined;
  const joined = value.replace(/[\r\n]/g, "");
  return /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(joined) ? joined : undefined;
};

const isByte = (value: unknown): boolean =>
  value === null || (Number.isInteger(value) && Number(value) >= 0 && Number(value) <= 255);
