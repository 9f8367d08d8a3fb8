import { canonicalizeQuantity, parseQuantity, type Quantity, roundUpToThousandths } from "#lib/objects/quantity.ts";

const shape = /^[+-]?0*(\d*)(?:\.(\d*))?([numkMGTPE]?|[KMGTPE]i|[eE][+-]?\d+)$/;
const decimal: Record<string, number> = { n: -9, u: -6, m: -3, "": 0, k: 3, M: 6, G: 9, T: 12, P: 15, E: 18 };
const binary: Record<string, number> = { Ki: 10, Mi: 20, Gi: 30, Ti: 40, Pi: 50, Ei: 60 };

/**
 * Returns a quantity as apimachinery writes it: unchanged if apimachinery takes the text for canonical (also `1.500`),
 * otherwise in canonical form; undefined if it is invalid.
 */
export const normalizeQuantity = (quantity: string | number): string | undefined => {
  const text = String(quantity).trim();
  const amount = parseQuantity(text);
  const isCanonical = findCanonicalScale(text) !== undefined;
  return amount && (isCanonical ? text : canonicalizeQuantity(amount));
};

/**
 * Returns an amount of a container's resource as the API server writes it (see `normalizeQuantity`), but rounded up
 * to thousandths.
 */
export const normalizeResourceAmount = (value: string | number): string | undefined => {
  const text = String(value).trim();
  const amount = parseQuantity(text);
  const scale = findCanonicalScale(text);
  if (amount === undefined || (scale !== undefined && scale >= -3)) return amount && text;
  return roundToThousandths(amount);
};

export const formatRoundedResourceAmount = (amount: Quantity): string =>
  (amount.text === undefined ? undefined : normalizeResourceAmount(amount.text)) ?? roundToThousandths(amount);

const roundToThousandths = (amount: Quantity): string =>
  canonicalizeQuantity({ ...amount, nanos: roundUpToThousandths(amount) * 1_000_000n });

/**
 * Returns the power of ten of the last digit if apimachinery takes a quantity's text for canonical; else undefined. The
 * numbers are those of apimachinery's ParseQuantity, which estimates how many decimal digits an int64 holds.
 */
const findCanonicalScale = (text: string): number | undefined => {
  if (text === "0") return 0;
  const [, integer = "", fraction = "", suffix = ""] = shape.exec(text) ?? [];
  const digits = (integer || "0") + fraction;
  const power = binary[suffix];
  if (power !== undefined) {
    const isShort = fraction === "" && 14 - digits.length - Math.trunc((power * 3) / 10) >= 0;
    // A multiple of 8 may be a multiple of 1024, which has another suffix in canonical form.
    return isShort && Number(digits) % 8 !== 0 ? 0 : undefined;
  }
  const scale = (decimal[suffix] ?? Number(suffix.slice(1))) - fraction.length;
  const isShort = digits.length <= 18 && scale >= -9;
  return isShort && scale % 3 === 0 && !digits.endsWith("000") && !digits.startsWith("0") ? scale : undefined;
};

const moment = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,](\d+))?(?:Z|[+-]\d\d:\d\d)$/;

export const normalizeTime = (text: string): string | undefined => {
  const date = parseDate(text);
  return date && `${date.toISOString().slice(0, 19)}Z`;
};

/** Returns a time in UTC with microseconds; undefined unless the text has six digits of them. */
export const normalizeMicroTime = (text: string): string | undefined => {
  const [, fraction = ""] = moment.exec(text) ?? [];
  const date = fraction.length === 6 ? parseDate(text) : undefined;
  return date && `${date.toISOString().slice(0, 19)}.${fraction}Z`;
};

const parseDate = (text: string): Date | undefined => {
  const date = new Date(moment.test(text) ? text.replace(/[.,]\d+/, "") : Number.NaN);
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
