/** Compares texts by their UTF-8 bytes, as Go does. (`<` compares UTF-16 units.) */
export const compareBytes = (left: string, right: string): number =>
  Buffer.compare(Buffer.from(left), Buffer.from(right));

/** Returns a value for an error message. A long text is cut. An object or a list is not shown, only named. */
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
