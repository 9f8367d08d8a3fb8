import type { Json } from "#lib/json.ts";
import { isObject, parsePointer } from "#lib/json.ts";

/** A document that is written to. */
export interface Root {
  root: { value: unknown };
  /** What is the patch's own; everything else is shared with others. */
  owned: WeakSet<object>;
}

/** How errors end where something isn't there. */
export const missing = "missing value";
const invalid = "invalid index referenced";

/** A member's place: what it is in, which may be written to, and its key there. */
export interface Place {
  parent: Json | unknown[];
  key: string;
}

/** The place that a path leads to, with copies of what is on the way where it isn't the patch's own; undefined where it leads nowhere. */
export const find = ({ root, owned }: Root, path: string): Place | undefined => {
  const steps = parsePointer(path);
  const key = steps.pop();
  if (key === undefined) return undefined;
  let parent = own(root.value, owned);
  root.value = parent;
  for (const step of steps) {
    const at = Array.isArray(parent) ? indexIn(parent, step) : step;
    if (Array.isArray(parent) && typeof at === "string") return undefined;
    const next: unknown = Object.hasOwn(parent ?? {}, at) ? Reflect.get(parent ?? {}, at) : undefined;
    if (!isObject(next)) return undefined;
    const mine = own(next, owned);
    set(parent as Json, at, mine);
    parent = mine;
  }
  return { parent: parent as Place["parent"], key };
};

/** A copy of one level, made once. */
const own = (value: unknown, owned: WeakSet<object>): unknown => {
  if (!isObject(value) || owned.has(value)) return value;
  const copy: object = Array.isArray(value) ? [...value] : Object.fromEntries(Object.entries(value));
  owned.add(copy);
  return copy;
};

const set = (parent: object, key: string | number, value: unknown) =>
  Reflect.defineProperty(parent, key, { value, writable: true, enumerable: true, configurable: true });

/** Go reads an index as it reads any number; otherwise why it can't be one. */
const numberOf = (key: string): number | string => {
  if (!/^[-+]?\d+$/.test(key)) return `strconv.Atoi: parsing ${JSON.stringify(key)}: invalid syntax`;
  const number = Number(key);
  return Number.isSafeInteger(number) ? number : `strconv.Atoi: parsing ${JSON.stringify(key)}: value out of range`;
};

/** Where in a list an index leads; otherwise why nowhere. */
export const indexIn = (list: readonly unknown[], key: string, size = list.length): number | string => {
  const number = numberOf(key);
  if (typeof number === "string") return number;
  const isThere = number < size && number >= -size;
  return isThere ? (number < 0 ? number + size : number) : `Unable to access invalid index: ${number}: ${invalid}`;
};

/** What stands there. */
export const get = ({ parent, key }: Place): unknown => {
  if (!Array.isArray(parent)) return Object.hasOwn(parent, key) ? parent[key] : undefined;
  const index = indexIn(parent, key);
  if (typeof index === "string") throw new Error(index);
  return parent[index];
};

/** Puts a value where one may stand already. */
export const put = ({ parent, key }: Place, value: unknown): void => {
  const index = Array.isArray(parent) ? indexIn(parent, key) : key;
  set(parent, index, value);
};

/** Adds a value; in a list, before what stands there. */
export const insert = ({ parent, key }: Place, value: unknown): void => {
  if (!Array.isArray(parent)) {
    set(parent, key, value);
    return;
  }
  if (key === "-") {
    parent.push(value);
    return;
  }
  const number = numberOf(key);
  if (typeof number === "string") throw new Error(`value was not a proper array index: '${key}': ${number}`);
  const index = indexIn(parent, key, parent.length + 1);
  if (typeof index === "string") throw new Error(index);
  parent.splice(index, 0, value);
};

/** Removes what stands there. */
export const take = ({ parent, key }: Place): void => {
  if (Array.isArray(parent)) {
    const index = indexIn(parent, key);
    if (typeof index === "string") throw new Error(index);
    parent.splice(index, 1);
    return;
  }
  if (!Object.hasOwn(parent, key)) throw new Error(`Unable to remove nonexistent key: ${key}: ${missing}`);
  Reflect.deleteProperty(parent, key);
};
