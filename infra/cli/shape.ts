// Shapes of input files. A misfit tells the place and what was expected there; the reader of the file makes the
// sentence and adds the line.
import { isMap } from "#lib/json.ts";

export interface Shape {
  expected: string;
  isFit(value: unknown): boolean;
  /** The shapes of a map's members, all of which are optional. */
  members?: Record<string, Shape>;
  /** The shape of a map's other members; without it, they are misfits. */
  others?: Shape | undefined;
}

export interface Misfit {
  path: string[];
  expected: string;
  /** For an unknown member: the known ones. */
  known?: string[];
}

const isText = (value: unknown) => typeof value === "string";

export const text: Shape = { expected: "a text", isFit: isText };
export const map: Shape = { expected: "a map", isFit: isMap };
export const number: Shape = { expected: "a number", isFit: (value) => typeof value === "number" };
export const flag: Shape = { expected: "true or false", isFit: (value) => typeof value === "boolean" };
export const texts: Shape = {
  expected: "a list of texts",
  isFit: (value) => Array.isArray(value) && value.every(isText),
};
export const mapOfTexts: Shape = {
  expected: "a map of texts",
  isFit: (value) => isMap(value) && Object.values(value).every(isText),
};

export const listOfMaps = (expected: string, isFit: (one: Record<string, unknown>) => boolean): Shape => ({
  expected,
  isFit: (value) => Array.isArray(value) && value.every((one) => isMap(one) && isFit(one)),
});

export const oneOf = (expected: string, ...words: unknown[]): Shape => ({
  expected,
  isFit: (value) => words.includes(value),
});

export const anything: Shape = { expected: "anything", isFit: () => true };

export const shape = (members: Record<string, Shape>, others?: Shape): Shape => ({ ...map, members, others });

/** Returns the same shape, for values that may also be null. */
export const orNull = (inner: Shape): Shape => ({ ...inner, isFit: (value) => value === null || inner.isFit(value) });

/** Returns the misfits in the order of the file. */
export const findMisfits = (value: unknown, wanted: Shape, path: string[] = []): Misfit[] => {
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
