/** Compares UTF-8 bytes, not UTF-16 units as `<` does. */
export const compareBytes = (one: string, other: string): number =>
  Buffer.compare(Buffer.from(one), Buffer.from(other));

/** Quotes a value for an error message; a long text is cut, and objects are only named. */
export const shown = (value: unknown): string => {
  if (typeof value === "string")
    return value.length > longest ? `${JSON.stringify(value.slice(0, longest))}…` : JSON.stringify(value);
  return typeof value === "object" ? typeOf(value) : String(value);
};

const longest = 80;

export const typeOf = (value: unknown): string => {
  if (value === null) return "null";
  if (typeof value !== "object") return `a ${typeof value}`;
  return Array.isArray(value) ? "a list" : "an object";
};
