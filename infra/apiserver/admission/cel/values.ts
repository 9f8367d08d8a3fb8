import { isMap } from "#lib/json.ts";

/** What is known of an object before anything is evaluated: how long its lists, maps and texts get. */
export interface Measured {
  longest: number;
  longestText: number;
  /** Whether all of its numbers are what they were written as. */
  isExact: boolean;
  /** How long the longest list or map gets that stands under a name. */
  lengthOf(name: string): number;
}

interface Known {
  value: unknown;
  measured: Measured;
}

const nothing: Measured = { longest: 0, longestText: 0, isExact: true, lengthOf: () => 0 };

/**
 * The same object is looked at by every condition of every hook, and its parts are those of the next one, which differs in
 * its metadata alone. Forgotten all at once, for objects that were judged are kept.
 */
let known = new WeakMap<object, Known>();
let count = 0;
const mostKnown = 256;

/** A value as CEL has it; the object is not to be changed afterwards. */
export const toCelValue = (value: unknown): unknown =>
  typeof value === "object" && value !== null ? of(value).value : (value ?? null);

/** See there. */
export const measure = (value: unknown): Measured =>
  typeof value === "object" && value !== null ? of(value).measured : nothing;

const of = (object: object): Known => known.get(object) ?? remembered(object, partsOf(object));

const remembered = (object: object, made: Known): Known => {
  if (++count > mostKnown) [known, count] = [new WeakMap(), 0];
  known.set(object, made);
  return made;
};

/** A map's members are looked up one by one. */
const partsOf = (object: object): Known => {
  const sizes: Sizes = { longest: 0, longestText: 0, isExact: true };
  if (!isMap(object)) return { value: convert(object, sizes), measured: measuredBy(sizes, object) };
  const value = new Map<string, unknown>();
  for (const [key, member] of Object.entries(object)) {
    if (member === undefined) continue;
    if (typeof member !== "object" || member === null) {
      value.set(key, convert(member, sizes));
      continue;
    }
    const part = known.get(member) ?? remembered(member, whole(member));
    value.set(key, part.value);
    const { longest, longestText, isExact } = part.measured;
    if (longest > sizes.longest) sizes.longest = longest;
    if (longestText > sizes.longestText) sizes.longestText = longestText;
    sizes.isExact &&= isExact;
  }
  sizes.longest = Math.max(sizes.longest, value.size);
  return { value, measured: measuredBy(sizes, object) };
};

const whole = (object: object): Known => {
  const sizes: Sizes = { longest: 0, longestText: 0, isExact: true };
  return { value: convert(object, sizes), measured: measuredBy(sizes, object) };
};

type Sizes = Omit<Measured, "lengthOf">;

/** By their names, lengths are seldom asked for. */
const measuredBy = (sizes: Sizes, object: object): Measured => {
  let lengths: Map<string, number> | undefined;
  const lengthOf = (name: string) => {
    lengths ??= lengthsIn(object, "", new Map());
    return lengths.get(name) ?? 0;
  };
  return { ...sizes, lengthOf };
};

/** JSON's whole numbers are integers to CEL, and a map has the keys that are in it, not those that every object of ours inherits. */
const convert = (value: unknown, sizes: Sizes): unknown => {
  if (typeof value === "string") {
    if (value.length > sizes.longestText) sizes.longestText = value.length;
    return value;
  }
  if (typeof value === "number") {
    if (!Number.isInteger(value)) return value;
    if (!Number.isSafeInteger(value)) sizes.isExact = false;
    return Number.isSafeInteger(value) ? BigInt(value) : value;
  }
  if (Array.isArray(value)) {
    if (value.length > sizes.longest) sizes.longest = value.length;
    return value.map((one) => convert(one, sizes));
  }
  if (!isMap(value)) return value ?? null;
  const map = new Map<string, unknown>();
  for (const key of Object.keys(value)) if (value[key] !== undefined) map.set(key, convert(value[key], sizes));
  if (map.size > sizes.longest) sizes.longest = map.size;
  return map;
};

const lengthsIn = (value: unknown, name: string, lengths: Map<string, number>): Map<string, number> => {
  const note = (length: number) => void lengths.set(name, Math.max(lengths.get(name) ?? 0, length));
  if (Array.isArray(value)) {
    note(value.length);
    for (const one of value) lengthsIn(one, name, lengths);
  } else if (isMap(value)) {
    const members = Object.entries(value).filter(([, one]) => one !== undefined);
    note(members.length);
    for (const [key, one] of members) lengthsIn(one, key, lengths);
  }
  return lengths;
};
