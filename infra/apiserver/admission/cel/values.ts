import { isMap } from "#lib/json.ts";

/** Sizes of an object, from which the cost of a CEL expression is estimated. */
export interface CelValueSizes {
  longest: number;
  longestText: number;
  /** True if JavaScript holds every number in the object exactly. */
  isExact: boolean;
  /** Returns the length of the longest list or map that any member of this name has, at any depth of the object. */
  lengthOf(name: string): number;
}

interface Conversion {
  value: unknown;
  measured: CelValueSizes;
}

const nothing: CelValueSizes = { longest: 0, longestText: 0, isExact: true, lengthOf: () => 0 };

/**
 * Caches conversions: every condition of every hook sees the same object, and the next object often differs only in its
 * metadata. All entries are dropped at once, because objects that were evaluated stay referenced.
 */
let known = new WeakMap<object, Conversion>();
let count = 0;
const mostKnown = 256;

/** Converts a value for CEL. The value must not be changed afterwards, because the result is cached. */
export const toCelValue = (value: unknown): unknown =>
  typeof value === "object" && value !== null ? getConversion(value).value : (value ?? null);

/**
 * Returns the sizes of a value for CEL's cost limit. The sizes are cached, so the value must not be changed later.
 */
export const measureValue = (value: unknown): CelValueSizes =>
  typeof value === "object" && value !== null ? getConversion(value).measured : nothing;

const getConversion = (object: object): Conversion =>
  known.get(object) ?? cacheConversion(object, convertMembers(object));

const cacheConversion = (object: object, made: Conversion): Conversion => {
  if (++count > mostKnown) [known, count] = [new WeakMap(), 0];
  known.set(object, made);
  return made;
};

/** Converts a map to CEL. Each member's conversion is cached by itself, because objects may share members. */
const convertMembers = (object: object): Conversion => {
  const sizes: Sizes = { longest: 0, longestText: 0, isExact: true };
  if (!isMap(object)) return { value: convert(object, sizes), measured: createSizes(sizes, object) };
  const value = new Map<string, unknown>();
  for (const [key, member] of Object.entries(object)) {
    if (member === undefined) continue;
    if (typeof member !== "object" || member === null) {
      value.set(key, convert(member, sizes));
      continue;
    }
    const part = known.get(member) ?? cacheConversion(member, convertWhole(member));
    value.set(key, part.value);
    const { longest, longestText, isExact } = part.measured;
    if (longest > sizes.longest) sizes.longest = longest;
    if (longestText > sizes.longestText) sizes.longestText = longestText;
    sizes.isExact &&= isExact;
  }
  sizes.longest = Math.max(sizes.longest, value.size);
  return { value, measured: createSizes(sizes, object) };
};

const convertWhole = (object: object): Conversion => {
  const sizes: Sizes = { longest: 0, longestText: 0, isExact: true };
  return { value: convert(object, sizes), measured: createSizes(sizes, object) };
};

type Sizes = Omit<CelValueSizes, "lengthOf">;

/** Returns a CEL value's sizes; `lengthOf` is computed on its first call only, because lengths are seldom needed. */
const createSizes = (sizes: Sizes, object: object): CelValueSizes => {
  let lengths: Map<string, number> | undefined;
  const getLength = (name: string) => {
    lengths ??= collectLengths(object, "", new Map());
    return lengths.get(name) ?? 0;
  };
  return { ...sizes, lengthOf: getLength };
};

/**
 * Converts a JSON value for CEL: whole numbers to BigInt, CEL's integers, and objects to Map, which has no inherited
 * keys.
 */
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
    return value.map((element) => convert(element, sizes));
  }
  if (!isMap(value)) return value ?? null;
  const map = new Map<string, unknown>();
  for (const key of Object.keys(value)) if (value[key] !== undefined) map.set(key, convert(value[key], sizes));
  if (map.size > sizes.longest) sizes.longest = map.size;
  return map;
};

const collectLengths = (value: unknown, name: string, lengths: Map<string, number>): Map<string, number> => {
  const note = (length: number) => void lengths.set(name, Math.max(lengths.get(name) ?? 0, length));
  if (Array.isArray(value)) {
    note(value.length);
    for (const element of value) collectLengths(element, name, lengths);
  } else if (isMap(value)) {
    const members = Object.entries(value).filter(([, member]) => member !== undefined);
    note(members.length);
    for (const [key, member] of members) collectLengths(member, key, lengths);
  }
  return lengths;
};
