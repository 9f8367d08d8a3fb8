// Shapes of values in input files. A misfit names the path and what was expected there; the caller adds the file and
// the line.
import { isMap } from "#lib/json.ts";

export interface InputShape {
  expected: string;
  isFit(value: unknown): boolean;
  /** The shapes of a map's members, all of which are optional. */
  members?: Record<string, InputShape>;
  /** The shape of a map's members that `members` doesn't name; without it, such members are mistakes. */
  others?: InputShape | undefined;
}

export interface ShapeMismatch {
  path: string[];
  expected: string;
  /** The known members, if the misfit is an unknown member. */
  known?: string[];
}

const isString = (value: unknown) => typeof value === "string";

export const textShape: InputShape = { expected: "a text", isFit: isString };
export const mapShape: InputShape = { expected: "a map", isFit: isMap };
export const numberShape: InputShape = { expected: "a number", isFit: (value) => typeof value === "number" };
export const flagShape: InputShape = { expected: "true or false", isFit: (value) => typeof value === "boolean" };
export const textListShape: InputShape = {
  expected: "a list of texts",
  isFit: (value) => Array.isArray(value) && value.every(isString),
};
export const textMapShape: InputShape = {
  expected: "a map of texts",
  isFit: (value) => isMap(value) && Object.values(value).every(isString),
};

export const createMapListShape = (expected: string, isFit: (map: Record<string, unknown>) => boolean): InputShape => ({
  expected,
  isFit: (value) => Array.isArray(value) && value.every((element) => isMap(element) && isFit(element)),
});

export const createEnumShape = (expected: string, ...words: unknown[]): InputShape => ({
  expected,
  isFit: (value) => words.includes(value),
});

export const anyShape: InputShape = { expected: "anything", isFit: () => true };

export const createMapShape = (members: Record<string, InputShape>, others?: InputShape): InputShape => ({
  ...mapShape,
  members,
  others,
});

/** Returns a shape that also accepts null. */
export const allowNull = (inner: InputShape): InputShape => ({
  ...inner,
  isFit: (value) => value === null || inner.isFit(value),
});

/** Returns each place where a value read from a file doesn't have the wanted shape, in the order of the file. */
export const findMisfits = (value: unknown, wanted: InputShape, path: string[] = []): ShapeMismatch[] => {
  const { expected, isFit, members, others } = wanted;
  if (!isFit(value)) return [{ path, expected }];
  if (members === undefined || !isMap(value)) return [];
  const known = Object.keys(members);
  return Object.entries(value).flatMap(([key, member]) => {
    const inner = Object.hasOwn(members, key) ? members[key] : others;
    if (inner) return findMisfits(member, inner, [...path, key]);
    return [{ path: [...path, key], expected: `one of ${known.join(", ")}`, known }];
  });
};
