/** Below 0 where one text stands before the other byte by byte, above where it stands behind. */
export const compareBytes = (one: string, other: string): number =>
  Buffer.compare(Buffer.from(one), Buffer.from(other));

/** A value in an error's sentence, and not at length. */
export const shown = (value: unknown): string => {
  if (typeof value === "string")
    return value.length > longest ? `${JSON.stringify(value.slice(0, longest))}…` : JSON.stringify(value);
  return typeof value === "object" ? typeOf(value) : String(value);
};

const longest = 80;

/** What a value is, in words. */
export const typeOf = (value: unknown): string => {
  if (value === null) return "null";
  if (typeof value !== "object") return `a ${typeof value}`;
  return Array.isArray(value) ? "a list" : "an object";
};
