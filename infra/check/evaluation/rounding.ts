import { exactJson } from "#lib/exact-json.ts";
import { isObject } from "#lib/json.ts";

/** The lists and maps in which bigints were looked for: every rule gets the same objects. */
const known = new WeakMap<object, boolean>();

const hasBigInteger = (value: unknown): boolean => {
  if (!isObject(value)) return typeof value === "bigint";
  const found = known.get(value) ?? Object.values(value).some(hasBigInteger);
  known.set(value, found);
  return found;
};

/** Returns a value without bigints, for rules without `exactIntegers`: integers are rounded, as `JSON.parse` does. */
export const roundIntegers = <T>(value: T): T =>
  hasBigInteger(value) ? (JSON.parse(exactJson.stringify(value)) as T) : value;
