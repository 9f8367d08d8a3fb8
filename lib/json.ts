/** Functions for JSON values and for paths in them. This file imports nothing, so all of lib and infra can use it. */

export type JsonMap = Record<string, unknown>;

/** A value that was found. It is wrapped in an object, so that it differs from undefined: nothing was found. */
export interface FoundValue {
  value: unknown;
}

/** The greatest depth of JSON to copy, greater than any real policy's. Without it, recursion overflows the stack. */
const maxDepth = 1000;

export const isObject = (value: unknown): value is object => typeof value === "object" && value !== null;

export const isMap = (value: unknown): value is JsonMap => isObject(value) && !Array.isArray(value);

export const isText = (value: unknown): value is string => typeof value === "string";

export const isTextOrNumber = (value: unknown): value is string | number => isText(value) || typeof value === "number";

export const isTextList = (value: unknown): value is string[] => Array.isArray(value) && value.every(isText);

export const parseJson = (text: string, parse: (text: string) => unknown = JSON.parse): unknown => {
  try {
    return parse(text);
  } catch {
    return undefined;
  }
};

export const escapeJsonPointerStep = (key: string): string =>
  /[~/]/.test(key) ? key.replaceAll("~", "~0").replaceAll("/", "~1") : key;

export const unescapeJsonPointerStep = (step: string): string =>
  step.includes("~") ? step.replaceAll("~1", "/").replaceAll("~0", "~") : step;

export const parsePointer = (pointer: string): string[] => pointer.split("/").slice(1).map(unescapeJsonPointerStep);

/** Returns the value if it is a map, else an empty map. */
export const toMap = (value: unknown): JsonMap => (isMap(value) ? value : {});

/** Returns the value if it is a list, else an empty list. */
export const toList = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);

/** Returns the value if it is a text, else an empty text. */
export const toText = (value: unknown): string => (isText(value) ? value : "");

/** Returns the value at a path of keys and indexes; undefined if the path leads nowhere. */
export const lookUp = (root: unknown, path: readonly (string | number)[]): FoundValue | undefined => {
  let value = root;
  for (const step of path) {
    const isContainer = typeof step === "number" ? Array.isArray(value) : isMap(value);
    if (!isContainer || !Object.hasOwn(value as JsonMap, step)) return undefined;
    value = (value as JsonMap)[step];
  }
  return { value };
};

/** Reports whether two JSON values are equal. Key order doesn't matter. It doesn't recurse: any depth is safe. */
export const isSame = (firstRoot: unknown, secondRoot: unknown): boolean => {
  const pairsToCompare: [unknown, unknown][] = [[firstRoot, secondRoot]];
  for (let pair = pairsToCompare.pop(); pair !== undefined; pair = pairsToCompare.pop()) {
    const [left, right] = pair;
    if (!isObject(left) || !isObject(right)) {
      if (left !== right) return false;
      continue;
    }
    const keys = Object.keys(left);
    if (Array.isArray(left) !== Array.isArray(right) || keys.length !== Object.keys(right).length) return false;
    for (const key of keys) {
      if (!Object.hasOwn(right, key)) return false;
      pairsToCompare.push([Reflect.get(left, key), Reflect.get(right, key)]);
    }
  }
  return true;
};

/**
 * Freezes a value deeply, without recursion. Reviews share settings and cached answers of clusters. A rule may put such
 * a value into an object; if it then edits the object, it must not change the value for the next review.
 */
export const freezeDeep = <T>(value: T): T => {
  const valuesToFreeze: unknown[] = [value];
  // The loop also visits the values that it appends.
  for (const current of valuesToFreeze)
    if (isObject(current))
      for (const inner of Object.values(Object.freeze(current))) if (isObject(inner)) valuesToFreeze.push(inner);
  return value;
};

/** Returns a deep copy of a value. The value may be a draft (see core/patch.ts). */
export const cloneDeep = <T>(value: T): T => copyValue(value, 0) as T;

/** Returns a copy of a JSON value at the level `depth`. A number that JSON doesn't have, such as NaN, is an error. */
const copyValue = (value: unknown, depth: number): unknown => {
  if (typeof value === "number" && !Number.isFinite(value)) throw new Error(`${value} is no number that JSON has`);
  if (!isObject(value)) return value;
  if (depth === maxDepth) throw new Error(`a value is nested more than ${maxDepth} levels deep`);
  if (Array.isArray(value)) return value.map((element) => copyValue(element, depth + 1));
  // The spread copies even an own member `__proto__`. Without that member, the assignment below would set the
  // prototype.
  const copy: JsonMap = { ...value };
  for (const key of Object.keys(copy)) copy[key] = copyValue(copy[key], depth + 1);
  return copy;
};

/** Sets a member; `__proto__` is a key like any other. Returns true, as the traps of a Proxy must after a write. */
export const setMember = (parent: object, key: string | number, value: unknown): boolean => {
  if (key === "__proto__")
    Object.defineProperty(parent, key, { value, writable: true, enumerable: true, configurable: true });
  else (parent as JsonMap)[key] = value;
  return true;
};

/** Sets a member to a copy of the value, also if the key is `__proto__`. Reports whether the member's value changed. */
export const setMemberToCopy = (parent: object, key: string | number, newValue: unknown): boolean => {
  const value = cloneDeep(newValue);
  if (Object.hasOwn(parent, key) && isSame(Reflect.get(parent, key), value)) return false;
  return Reflect.defineProperty(parent, key, { value, writable: true, enumerable: true, configurable: true });
};

/** Removes a member. Reports whether the member existed. */
export const deleteMember = (parent: object, key: string): boolean =>
  Object.hasOwn(parent, key) && Reflect.deleteProperty(parent, key);

/** Returns a map; undefined if the value is absent or null. Throws if it is anything else. */
export const readOptionalMap = (value: unknown, field: string): JsonMap | undefined => {
  if (value === undefined || value === null) return undefined;
  if (!isMap(value)) throw new Error(`${field} must be a map`);
  return value;
};

/** Returns a map of texts; undefined if the value is absent or null. Throws if it is anything else. */
export const requireTexts = (value: unknown, field: string): Record<string, string> | undefined => {
  const map = readOptionalMap(value, field);
  for (const [key, member] of Object.entries(map ?? {}))
    if (typeof member !== "string") throw new Error(`${field}[${JSON.stringify(key)}] must be a text`);
  return map as Record<string, string> | undefined;
};

/** Returns a list; undefined if the value is absent or null. Throws if it is anything else. */
export const readListIfSet = (value: unknown, field: string): unknown[] | undefined => {
  if (value === undefined || value === null) return undefined;
  if (!Array.isArray(value)) throw new Error(`${field} must be a list`);
  return value;
};

/** Returns an own member of a value, never a member that its prototype has; undefined if there is none. */
export const getOwn = (value: unknown, key: string | number): unknown =>
  isObject(value) && Object.hasOwn(value, key) ? Reflect.get(value, key) : undefined;

/** Returns the map under a key. Creates it if it is absent or null. Throws if the value is anything else. */
export const getOrCreateMap = (parent: object, key: string, fieldInError: string): JsonMap => {
  if (readOptionalMap(getOwn(parent, key), fieldInError) === undefined) setMemberToCopy(parent, key, {});
  // The map is read again: the parent contains a copy of `{}`, and edits must change that copy. If the parent is a
  // draft (see core/patch.ts), reading returns a proxy that records the edits.
  return readOptionalMap(getOwn(parent, key), fieldInError) ?? {};
};

/** Calls `act` for every item, and reports whether any call returned true. (`some` would stop at the first true.) */
export const applyToEach = <T>(items: Iterable<T>, act: (item: T) => boolean): boolean => {
  let changed = false;
  for (const item of items) changed = act(item) || changed;
  return changed;
};

/** Sets members of the map under a key. Creates a map only if there are members to set. Reports whether any changed. */
export const setMapMembers = (parent: object, key: string, members: JsonMap, fieldInError: string): boolean =>
  applyToEach(Object.entries(members), ([name, value]) =>
    setMemberToCopy(getOrCreateMap(parent, key, fieldInError), name, value),
  );

/** Reports whether a JSON value is nested in more than `levels` levels. It doesn't recurse: any depth is safe. */
export const isDeeper = (value: unknown, levels: number): boolean => {
  let level: unknown[] = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > levels) return true;
    const nextLevel: unknown[] = [];
    for (const container of level)
      if (isObject(container)) for (const inner of Object.values(container)) if (isObject(inner)) nextLevel.push(inner);
    level = nextLevel;
  }
  return false;
};

/** Reports whether a map in JSON text has a key twice: parsers disagree on its value. `value` is the parsed text. */
export const hasRepeatedKey = (text: string, value: unknown): boolean => {
  let keysInText = 0;
  forEachWrittenKey(text, () => keysInText++);
  let keysInValue = 0;
  forEachKey(value, () => keysInValue++);
  return keysInValue !== keysInText;
};

/**
 * Reports whether `value`, the parsed text, lacks a key of the text. JSON.parse of V8 12.8 and later may read a key
 * with an escape, such as `"\u0073pec"`, as another key that begins with a backslash and was read earlier
 * (github.com/nodejs/node/issues/63785). A key that is parsed alone is read correctly.
 */
export const hasMisreadKey = (text: string, value: unknown): boolean => {
  if (!text.includes("\\")) return false;
  /** By key: how often the text has it, minus how often the value has it. */
  const differences = new Map<string, number>();
  const add = (key: string, count: number) => differences.set(key, (differences.get(key) ?? 0) + count);
  let isEscaped = false;
  forEachWrittenKey(text, (from, to) => {
    const key = text.slice(from, to);
    isEscaped ||= key.includes("\\");
    add(JSON.parse(key), 1);
  });
  if (!isEscaped) return false;
  forEachKey(value, (key) => add(key, -1));
  return [...differences.values()].some((count) => count !== 0);
};

/** Calls `act` with each key of each map in a value, without recursion. */
const forEachKey = (value: unknown, act: (key: string) => void): void => {
  const containers = [value];
  for (let container = containers.pop(); container !== undefined; container = containers.pop()) {
    if (!isObject(container)) continue;
    if (!Array.isArray(container)) Object.keys(container).forEach(act);
    for (const member of Object.values(container)) if (isObject(member)) containers.push(member);
  }
};

/**
 * Calls `act` for each key in JSON text. `from` is the index of its opening quote, `to` the index after its closing
 * quote.
 */
const forEachWrittenKey = (text: string, act: (from: number, to: number) => void): void => {
  const colon = /[ \t\r\n]*:/y;
  for (let quote = text.indexOf('"'); quote >= 0; ) {
    const end = findJsonStringEnd(text, quote + 1) ?? text.length;
    colon.lastIndex = end;
    if (colon.test(text)) act(quote, end);
    quote = text.indexOf('"', end);
  }
};

/** Returns the index after a JSON string's closing quote. `begin` is the index after its opening quote. */
export const findJsonStringEnd = (text: string, begin: number): number | undefined => {
  for (let quote = text.indexOf('"', begin); quote >= 0; quote = text.indexOf('"', quote + 1)) {
    let backslashes = 0;
    while (quote - backslashes > begin && text[quote - backslashes - 1] === "\\") backslashes++;
    if (backslashes % 2 === 0) return quote + 1;
  }
  return undefined;
};
