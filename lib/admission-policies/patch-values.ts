import { toJson } from "../cel/json.ts";
import { formatDuration } from "../cel/libraries/value-text.ts";
import { StructValue } from "../cel/structs.ts";
import {
  CelMap,
  Duration,
  EvaluationError,
  isList,
  listEntries,
  Optional,
  Timestamp,
  TypeValue,
  Uint,
  type Value,
} from "../cel/values.ts";
import type { JsonMap } from "../json.ts";
import { formatGo, formatGoSyntax, GoValue } from "./go-values.ts";

/**
 * Returns the patch that the value of an ApplyConfiguration is, as upstream converts it. In a list or map that an
 * expression makes, upstream converts messages and scalars, but no other list or map; and it never converts null. What
 * it leaves becomes a GoValue, which fits no schema. Throws an EvaluationError for a value that JSON can't have.
 */
export const toPatch = (value: Value): unknown => {
  if (value instanceof Optional) return value.value === undefined ? null : toPatch(value.value);
  if (isList(value)) return value.map(convertElement);
  if (value instanceof CelMap) return convertMembers(listEntries(value), convertMember);
  return value === null ? nullValue : convertElement(value);
};

const nullValue = new GoValue("structpb.NullValue", "NULL_VALUE", "0");

const convertMembers = (
  entries: Iterable<readonly [key: Value, value: Value]>,
  convert: (value: Value) => unknown,
): JsonMap =>
  Object.fromEntries(
    Array.from(entries, ([key, value]) => {
      if (typeof key !== "string") throw new EvaluationError("a map has a key that is not a string");
      return [key, convert(value)];
    }),
  );

/** Upstream converts a list of the cluster's object here. A value doesn't show whether it is one. */
const convertMember = (value: Value): unknown => {
  if (value === null) return nullValue;
  return isList(value) ? wrap("[]ref.Val", value) : convertElement(value);
};

const convertElement = (value: Value): unknown => {
  if (value instanceof StructValue) return convertMembers(value.fields, toPatch);
  if (value instanceof Optional) return value.value === undefined ? null : convertElement(value.value);
  if (value instanceof TypeValue) return value.of.name;
  if (value instanceof CelMap) return wrap("map[ref.Val]ref.Val", value);
  if (value instanceof Uint) return new GoValue("uint64", `${value.value}`, `0x${value.value.toString(16)}`);
  if (value instanceof Duration) return new GoValue("time.Duration", formatDuration(value), `${value.nanoseconds}`);
  if (value instanceof Timestamp) return wrap("time.Time", value);
  if (value instanceof Uint8Array) {
    const bytes = Array.from(value, (byte) => `0x${byte.toString(16)}`).join(", ");
    return new GoValue("[]uint8", `[${value.join(" ")}]`, `[]uint8{${bytes}}`);
  }
  if (typeof value === "bigint") throw new EvaluationError(`JSON here can't have the integer ${value}`);
  return toJson(value);
};

const wrap = (type: string, value: Value): GoValue => {
  const json = toJson(value);
  return new GoValue(type, formatGo(json), formatGoSyntax(json).replace(/^(\[\]|map\[string\])interface \{\}/, type));
};
