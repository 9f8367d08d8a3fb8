/** A value as JSON that stands so deep in another, as `JSON.stringify` would indent it. */
export const jsonAt = (value: unknown, depth: number): string =>
  JSON.stringify(value, null, 2).replaceAll("\n", `\n${"  ".repeat(depth)}`);

/** A list in JSON that is written member by member. */
export interface List {
  add(member: unknown): string;
  end(): string;
}

/** A list whose members stand so deep in what surrounds it. */
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
