/**
 * Values of JSON, drafts of them, and paths into them. This module imports nothing: everything in lib and infra may use it.
 */

/** A map of JSON, or a draft of one. */
export type Json = Record<string, unknown>;

/** A value that is there; null is one. */
export interface Found {
  value: unknown;
}

/** Deeper than any policy that somebody wrote; beyond, recursion would end the process rather than the request. */
const deepest = 1000;

/** Reports whether a value is a map or a list. */
export const isObject = (value: unknown): value is object => typeof value === "object" && value !== null;

export const isMap = (value: unknown): value is Json => isObject(value) && !Array.isArray(value);

/** Parses a text of JSON; returns undefined for any other text. */
export const parseJson = (text: string): unknown => {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
};

/** Writes a key as a step of a JSON pointer. */
export const escapeStep = (key: string): string => key.replaceAll("~", "~0").replaceAll("/", "~1");

/** Reads the key that a step of a JSON pointer names. */
export const unescapeStep = (step: string): string => step.replaceAll("~1", "/").replaceAll("~0", "~");

/** Returns the keys that a JSON pointer goes through. */
export const parsePointer = (pointer: string): string[] => pointer.split("/").slice(1).map(unescapeStep);

/** Returns the value where it is a map, and an empty map otherwise. */
export const toMap = (value: unknown): Json => (isMap(value) ? value : {});

/** Returns the value where it is a list, and an empty list otherwise. */
export const toList = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);

/** What stands at the end of a path of keys and indexes; undefined where it leads nowhere. */
export const lookUp = (root: unknown, path: readonly (string | number)[]): Found | undefined => {
  let value = root;
  for (const step of path) {
    const isThere = typeof step === "number" ? Array.isArray(value) : isMap(value);
    if (!isThere || !Object.hasOwn(value as Json, step)) return undefined;
    value = (value as Json)[step];
  }
  return { value };
};

/** Whether two values of JSON are the same, in whatever order their members stand, and however deep they nest. */
export const isSame = (one: unknown, other: unknown): boolean => {
  const open: [unknown, unknown][] = [[one, other]];
  for (let pair = open.pop(); pair !== undefined; pair = open.pop()) {
    const [left, right] = pair;
    if (!isObject(left) || !isObject(right)) {
      if (left !== right) return false;
      continue;
    }
    const keys = Object.keys(left);
    if (Array.isArray(left) !== Array.isArray(right) || keys.length !== Object.keys(right).length) return false;
    for (const key of keys) {
      if (!Object.hasOwn(right, key)) return false;
      open.push([Reflect.get(left, key), Reflect.get(right, key)]);
    }
  }
  return true;
};

/**
 * Freezes a value with all that is in it. Settings and what clusters answer are everybody's: a rule that puts one into an
 * object and edits it there must not change the next review. Such values may nest deeper than a function can call itself.
 */
export const frozen = <T>(value: T): T => {
  const found: unknown[] = [value];
  // The list grows on the way.
  for (const one of found)
    if (Object(one) === one) for (const inner of Object.values(Object.freeze(one as object))) found.push(inner);
  return value;
};

/** A copy that shares nothing with what it was made of, which may be a draft. */
export const cloned = <T>(value: T): T => copyOf(value, 0) as T;

const copyOf = (value: unknown, depth: number): unknown => {
  if (typeof value === "number" && !Number.isFinite(value)) throw new Error(`${value} is no number that JSON has`);
  if (!isObject(value)) return value;
  if (depth === deepest) throw new Error(`a value is nested more than ${deepest} levels deep`);
  if (Array.isArray(value)) return value.map((element) => copyOf(element, depth + 1));
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, copyOf(member, depth + 1)]));
};

/** Sets a member to a copy of the value, and says whether that changed anything. `__proto__` is a key like any other. */
export const put = (parent: object, key: string | number, given: unknown): boolean => {
  const value = cloned(given);
  if (Object.hasOwn(parent, key) && isSame(Reflect.get(parent, key), value)) return false;
  return Reflect.defineProperty(parent, key, { value, writable: true, enumerable: true, configurable: true });
};

/** Removes a member, and says whether there was one. */
export const drop = (parent: object, key: string): boolean =>
  Object.hasOwn(parent, key) && Reflect.deleteProperty(parent, key);

/** The map that a value is; undefined where there is none, and an error for what is something else. */
export const mapOf = (value: unknown, field: string): Json | undefined => {
  if (value === undefined || value === null) return undefined;
  if (!isMap(value)) throw new Error(`${field} must be a map`);
  return value;
};

/** As `mapOf`, of texts. */
export const textsOf = (value: unknown, field: string): Record<string, string> | undefined => {
  const map = mapOf(value, field);
  for (const [key, member] of Object.entries(map ?? {}))
    if (typeof member !== "string") throw new Error(`${field}[${JSON.stringify(key)}] must be a text`);
  return map as Record<string, string> | undefined;
};

/** As `mapOf`, for a list. */
export const listOf = (value: unknown, field: string): unknown[] | undefined => {
  if (value === undefined || value === null) return undefined;
  if (!Array.isArray(value)) throw new Error(`${field} must be a list`);
  return value;
};

/** Returns a member of the value's own: one that it doesn't have by its prototype. */
export const own = (value: unknown, key: string | number): unknown =>
  isObject(value) && Object.hasOwn(value, key) ? Reflect.get(value, key) : undefined;

/** The map under a key, made where there is none. */
export const mapAt = (parent: object, key: string, field: string): Json => {
  if (mapOf(own(parent, key), field) === undefined) put(parent, key, {});
  return mapOf(own(parent, key), field) ?? {};
};

/** Whether any of it is so, all of it done: what `some` would stop at is still to be carried out. */
export const any = <T>(items: Iterable<T>, act: (item: T) => boolean): boolean => {
  let changed = false;
  for (const item of items) changed = act(item) || changed;
  return changed;
};

/** Sets members of the map under a key, which is made where there is something to set and no map. */
export const fill = (parent: object, key: string, members: Json, field: string): boolean =>
  any(Object.entries(members), ([name, value]) => put(mapAt(parent, key, field), name, value));

/** Reports whether JSON is nested more than so many levels below its root; without recursion, which could go too deep. */
export const isDeeper = (value: unknown, levels: number): boolean => {
  let level: unknown[] = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > levels) return true;
    const next: unknown[] = [];
    for (const one of level)
      if (isObject(one)) for (const inner of Object.values(one)) if (isObject(inner)) next.push(inner);
    level = next;
  }
  return false;
};

/**
 * Reports whether a text of JSON has a key twice in one map: of two values, readers take different ones. `value` is what
 * the text was parsed to, which has one of them.
 */
export const hasRepeatedKey = (text: string, value: unknown): boolean => countKeys(value) !== countWrittenKeys(text);

const countKeys = (value: unknown): number => {
  let count = 0;
  const open = [value];
  for (let one = open.pop(); one !== undefined; one = open.pop()) {
    if (!isObject(one)) continue;
    const inner = Object.values(one);
    if (!Array.isArray(one)) count += inner.length;
    for (const member of inner) if (isObject(member)) open.push(member);
  }
  return count;
};

/** Counts the strings that a colon follows. */
const countWrittenKeys = (text: string): number => {
  const colon = /[ \t\r\n]*:/y;
  let count = 0;
  for (let quote = text.indexOf('"'); quote >= 0; ) {
    const end = endOfString(text, quote + 1) ?? text.length;
    colon.lastIndex = end;
    if (colon.test(text)) count++;
    quote = text.indexOf('"', end);
  }
  return count;
};

/** Finds where a string of JSON ends, from behind its opening quote. */
export const endOfString = (text: string, begin: number): number | undefined => {
  for (let quote = text.indexOf('"', begin); quote >= 0; quote = text.indexOf('"', quote + 1)) {
    let escapes = 0;
    while (quote - escapes > begin && text[quote - escapes - 1] === "\\") escapes++;
    if (escapes % 2 === 0) return quote + 1;
  }
  return undefined;
};
