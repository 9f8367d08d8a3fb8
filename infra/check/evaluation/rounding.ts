import { exactJson } from "#lib/exact-json.ts";
import { isObject } from "#lib/json.ts";

/** The Kubernetes objects in which bigints were looked for: every rule gets the same objects. */
const known = new WeakMap<object, boolean>();

const hasBigInteger = (value: unknown): boolean => {
  if (!isObject(value)) return typeof value === "bigint";
  // To remember parts of an object would take longer than to look again, and much memory.
  const isWhole = Object.hasOwn(value, "metadata");
  const found = (isWhole ? known.get(value) : undefined) ?? Object.values(value).some(hasBigInteger);
  if (isWhole) known.set(value, found);
  return found;
};

/** Returns a value without bigints, for rules without `exactIntegers`: integers are rounded, as `JSON.parse` does. */
export const roundIntegers = <T>(value: T): T =>
  hasBigInteger(value) ? (JSON.parse(exactJson.stringify(value)) as T) : value;
