/** Compares UTF-8 bytes, not UTF-16 units as `<` does. */
export const compareBytes = (left: string, right: string): number =>
  Buffer.compare(Buffer.from(left), Buffer.from(right));

/** Quotes a value for an error message; a long text is cut, and objects are only named. */
export const quoteValue = (value: unknown): string => {
  if (typeof value === "string")
    return value.length > maximumLength ? `${JSON.stringify(value.slice(0, maximumLength))}…` : JSON.stringify(value);
  return typeof value === "object" ? describeType(value) : String(value);
};

const maximumLength = 80;

export const describeType = (value: unknown): string => {
  if (value === null) return "null";
  if (typeof value !== "object") return `a ${typeof value}`;
  return Array.isArray(value) ? "a list" : "an object";
};
