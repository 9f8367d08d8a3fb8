/** Matches all integers that a number may not hold, and some that it holds; rarely texts. */
const longInteger = /[:[,\s]-?\d{16}/;

// TypeScript's types lack this function.
const { rawJSON } = JSON as JSON & { rawJSON(text: string): object };

/** JSON in which an integer of 64 bits that a number doesn't hold is a bigint. All else is as with `JSON`. */
export const exactJson = {
  parse: (text: string): unknown => (longInteger.test(text) ? JSON.parse(text, readInteger) : JSON.parse(text)),
  stringify: (value: unknown): string => JSON.stringify(value, writeInteger),
};

const readInteger = (_: string, value: unknown, { source = "" }: { source?: string } = {}): unknown => {
  if (typeof value !== "number" || Number.isSafeInteger(value) || !/^-?\d+$/.test(source)) return value;
  const integer = BigInt(source);
  return BigInt.asIntN(64, integer) === integer ? integer : value;
};

/** A replacer for `JSON.stringify`, which writes a bigint as a number. */
export const writeInteger = (_: string, value: unknown): unknown =>
  typeof value === "bigint" ? rawJSON(String(value)) : value;
