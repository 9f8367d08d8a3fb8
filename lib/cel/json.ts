import { formatTimestamp } from "./libraries/time.ts";
import { formatDuration } from "./libraries/value-text.ts";
import { StructValue } from "./structs.ts";
import { formatType } from "./types.ts";
import {
  CelMap,
  CelObject,
  Double,
  Duration,
  EvaluationError,
  getType,
  isList,
  listEntries,
  Optional,
  Timestamp,
  toArray,
  Uint,
  type Value,
} from "./values.ts";

/**
 * Converts a value to JSON, as upstream does. Integers that are not safe become bigints. `convertMessage` converts the
 * values of message literals. Throws if a value has no form in JSON.
 */
export const toJson = (value: Value, convertMessage: (message: StructValue) => unknown): unknown => {
  if (typeof value === "number" && !Number.isFinite(value)) throw createError(value);
  const convert = (inner: Value) => toJson(inner, convertMessage);
  if (isList(value)) return toArray(value).map(convert);
  if (value instanceof Uint8Array) return Buffer.from(value).toString("base64");
  if (value instanceof Double) return value.value;
  if (value instanceof Uint) return Number.isSafeInteger(Number(value.value)) ? Number(value.value) : value.value;
  if (value instanceof Duration) return formatDuration(value);
  if (value instanceof Timestamp) return formatTimestamp(value);
  if (value instanceof Optional && value.value !== undefined) return convert(value.value);
  if (value instanceof StructValue) return convertMessage(value);
  if (value instanceof CelMap) return toMembers(listEntries(value), convert);
  // All other values are JSON already.
  if (!(value instanceof CelObject)) return value;
  throw createError(value);
};

/** Returns a CEL map as a JSON object. A key that is no string is an error. */
const toMembers = (
  entries: Iterable<readonly [key: Value, value: Value]>,
  convert: (value: Value) => unknown,
): Record<string, unknown> =>
  Object.fromEntries(
    Array.from(entries, ([key, value]) => {
      if (typeof key !== "string") throw createError(key, "string");
      return [key, convert(value)];
    }),
  );

const createError = (value: Value, wanted = "JSON") =>
  new EvaluationError(`unsupported type conversion from '${formatType(getType(value))}' to ${wanted}`);

/**
 * Returns the faults in the names of message types in a value. The type of a message must have the name of its path,
 * such as `Object.spec` for the field `spec`.
 */
export const findTypeNameFaults = (value: Value, path: readonly string[]): string[] => {
  if (isList(value)) return toArray(value).flatMap((element) => findTypeNameFaults(element, path));
  if (value instanceof StructValue && value.type.name !== "JSONPatch") {
    const { name } = value.type;
    const expected = path.join(".");
    const fault = `unexpected type name "${name}", expected "${expected}", which matches field name path from root Object type`;
    const inner = [...value.fields].flatMap(([key, field]) => findTypeNameFaults(field, [...path, key]));
    return name === expected ? inner : [fault, ...inner];
  }
  return value instanceof CelMap
    ? [...value.entries.values()].flatMap(([, member]) => findTypeNameFaults(member, path))
    : [];
};
