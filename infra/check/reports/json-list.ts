/** Returns a value as JSON, indented as `JSON.stringify` would at this depth. */
export const jsonAt = (value: unknown, depth: number): string =>
  JSON.stringify(value, null, 2).replaceAll("\n", `\n${"  ".repeat(depth)}`);

export interface List {
  add(member: unknown): string;
  end(): string;
}

/** `depth` is that of the members. */
export const openList = (depth: number): List => {
  const pad = (levels: number) => `\n${"  ".repeat(levels)}`;
  let isBegun = false;
  return {
    add: (member) => {
      const before = isBegun ? "," : "[";
      isBegun = true;
      return `${before}${pad(depth)}${jsonAt(member, depth)}`;
    },
    end: () => (isBegun ? `${pad(depth - 1)}]` : "[]"),
  };
};
