/** The keys that a JSON pointer names, from the root; none for the root itself. */
export const stepsOf = (pointer: string): string[] => {
  if (pointer === "") return [];
  if (!pointer.startsWith("/")) throw new Error(`the path ${JSON.stringify(pointer)} must begin with a slash`);
  return pointer.slice(1).split("/").map(unescaped);
};

/** A key as it is, of one in which `~1` stands for a slash and `~0` for a tilde. */
export const unescaped = (key: string): string => key.replace(/~[01]/g, (pair) => (pair === "~1" ? "/" : "~"));
