import { isMap } from "../policy/tree.ts";

/** What is known of an object before anything is evaluated: how long its lists, maps and texts get, by the names they stand under. */
export interface Measured {
  lengths: ReadonlyMap<string, number>;
  longest: number;
  longestText: number;
  /** Whether all of its numbers are what they were written as. */
  isExact: boolean;
}

interface Known {
  value: unknown;
  measured: Measured;
}

const nothing: Measured = { lengths: new Map(), longest: 0, longestText: 0, isExact: true };

// The same object is looked at by every condition of every hook.
const known = new WeakMap<object, Known>();

/** A value as CEL has it; the object is not to be changed afterwards. */
export const celValue = (value: unknown): unknown =>
  typeof value === "object" && value !== null ? of(value).value : (value ?? null);

/** See there. */
export const measured = (value: unknown): Measured =>
  typeof value === "object" && value !== null ? of(value).measured : nothing;

const of = (object: object): Known => {
  const found = known.get(object);
  if (found) return found;
  const measured = { lengths: new Map<string, number>(), longest: 0, longestText: 0, isExact: true };
  const made = { value: convert(object, "", measured), measured };
  known.set(object, made);
  return made;
};

type Mutable = { -readonly [Key in keyof Measured]: Measured[Key] } & { lengths: Map<string, number> };

/** JSON's whole numbers are integers to CEL, and a map has the keys that are in it, not those that every object of ours inherits. */
const convert = (value: unknown, name: string, sizes: Mutable): unknown => {
  if (typeof value === "string") {
    sizes.longestText = Math.max(sizes.longestText, value.length);
    return value;
  }
  if (typeof value === "number") {
    if (!Number.isInteger(value)) return value;
    if (!Number.isSafeInteger(value)) sizes.isExact = false;
    return Number.isSafeInteger(value) ? BigInt(value) : value;
  }
  if (Array.isArray(value)) {
    note(name, value.length, sizes);
    return value.map((one) => convert(one, name, sizes));
  }
  if (!isMap(value)) return value ?? null;
  const entries = Object.entries(value).filter(([, one]) => one !== undefined);
  note(name, entries.length, sizes);
  return new Map(entries.map(([key, one]) => [key, convert(one, key, sizes)]));
};

const note = (name: string, length: number, sizes: Mutable): void => {
  sizes.longest = Math.max(sizes.longest, length);
  sizes.lengths.set(name, Math.max(sizes.lengths.get(name) ?? 0, length));
};
