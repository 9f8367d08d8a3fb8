import { canonical, milliOf, parseQuantity, type Quantity, wholeOf } from "../../objects/quantity.ts";
import { type Decimal, parseDecimal } from "../values/decimals.ts";
import { shown } from "../values/texts.ts";

export const factorOf = (text: unknown, field: string): Decimal => {
  const factor = typeof text === "string" || typeof text === "number" ? parseDecimal(text) : undefined;
  if (factor === undefined || factor.numerator < 0n)
    throw new Error(`${field} must be a decimal such as "0.5", not ${shown(text)}`);
  return factor;
};

export const shareOf = (text: unknown, field: string): Decimal => {
  const factor = factorOf(text, field);
  if (factor.numerator === 0n || factor.numerator >= factor.denominator)
    throw new Error(`${field} must be greater than 0 and less than 1, not ${shown(text)}`);
  return factor;
};

export const quantityIn = (value: unknown, field: string): Quantity => {
  const quantity = typeof value === "string" || typeof value === "number" ? parseQuantity(value) : undefined;
  if (quantity === undefined) throw new Error(`${field} must be a quantity, not ${shown(value)}`);
  return quantity;
};

/** Multiplies a quantity by a factor, in units of `unit` billionths, rounded half away from zero. */
export const rounded = ({ nanos }: Quantity, { numerator, denominator }: Decimal, unit: bigint): bigint => {
  const [dividend, divisor] = [nanos * numerator, denominator * unit];
  return (2n * dividend + (dividend < 0n ? -divisor : divisor)) / (2n * divisor);
};

/**
 * Multiplies a quantity by a factor, truncated to thousandths of a CPU or whole bytes, in the API server's notation.
 * Calculates in floating point, as upstream does: 100 times 0.29 is 28 bytes.
 */
export const truncated = (quantity: Quantity, factor: number, isCpu: boolean): string => {
  const product = Number(isCpu ? milliOf(quantity) : wholeOf(quantity)) * factor;
  if (!Number.isFinite(product)) throw new Error(`${factor} times ${quantity.text} is more than there can be`);
  const count = BigInt(Math.trunc(product));
  return isCpu
    ? canonical({ nanos: count * 10n ** 6n, notation: "decimal" })
    : canonical({ nanos: count * 10n ** 9n, notation: "binary" });
};
