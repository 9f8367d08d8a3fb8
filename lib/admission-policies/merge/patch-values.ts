import { toJson } from "../../cel/json.ts";
import { formatDuration } from "../../cel/libraries/value-text.ts";
import { nativeTypes, StructValue } from "../../cel/structs.ts";
import {
  CelMap,
  Duration,
  EvaluationError,
  isBuiltList,
  isList,
  LibraryObject,
  listEntries,
  Optional,
  Timestamp,
  TypeValue,
  toArray,
  Uint,
  type Value,
} from "../../cel/values.ts";
import type { JsonMap } from "../../json.ts";
import { formatGo, formatGoSyntax, GoValue, isJsonMap } from "./go-values.ts";

/**
 * Converts the value of an ApplyConfiguration to a patch, as upstream does. Of the elements of a list or a map
 * that the expression builds, upstream converts messages and most scalars to JSON. The others, such as null and inner
 * lists and maps that the expression builds, become GoValues, which no schema accepts. Throws an EvaluationError for a
 * value that has no form in JSON.
 */
export const toPatch = (value: Value): unknown => {
  if (value instanceof Optional) return value.value === undefined ? null : toPatch(value.value);
  if (isList(value)) return toArray(value).map(isBuiltList(value) ? convertElement : toPatch);
  return value instanceof CelMap ? convertMembers(listEntries(value), convertElement) : convertElement(value);
};

/** Converts the value of a patch's operation, as upstream does. Throws an EvaluationError if it has no form in JSON. */
export const toOperand = (value: Value): unknown => toJson(value, (message) => toProtobuf(toPatch(message)));

/** Converts a value as upstream does, through a protobuf message: all numbers become doubles. */
const toProtobuf = (value: unknown): unknown => {
  if (typeof value === "bigint") return Number(value);
  if (Array.isArray(value)) return value.map(toProtobuf);
  if (isJsonMap(value))
    return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, toProtobuf(member)]));
  if (!(value instanceof GoValue)) return value;
  if (value.operand === undefined) throw new EvaluationError(`proto: invalid type: ${value.type}`);
  return value.operand;
};

const nullValue = new GoValue("structpb.NullValue", "NULL_VALUE", "0");

/** Returns a CEL map as a JSON object. A key that is no string is an error. */
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

/** Converts an element of a list or a map that the expression builds: to JSON, or to a GoValue for other types. */
const convertElement = (value: Value): unknown => {
  if (value === null) return nullValue;
  if (value instanceof StructValue)
    return value.type.name === "JSONPatch"
      ? new GoValue("*mutation.JSONPatchVal", "JSONPatch", "JSONPatch")
      : convertMembers(value.fields, toPatch);
  if (value instanceof Optional) return value.value === undefined ? null : convertElement(value.value);
  if (value instanceof TypeValue) return value.of.name;
  if (isList(value)) return isBuiltList(value) ? wrap("[]ref.Val", value) : toArray(value).map(convertElement);
  if (value instanceof CelMap) return wrap("map[ref.Val]ref.Val", value);
  if (value instanceof Uint)
    return new GoValue(
      "uint64",
      /* text */ `${value.value}`,
      /* syntax */ `0x${value.value.toString(16)}`,
      /* operand */ Number(value.value),
    );
  if (value instanceof Duration) return new GoValue("time.Duration", formatDuration(value), `${value.nanos}`);
  if (value instanceof Timestamp) return wrap("time.Time", value);
  if (value instanceof Uint8Array) {
    const bytes = Array.from(value, (byte) => `0x${byte.toString(16)}`).join(", ");
    return new GoValue("[]uint8", `[${value.join(" ")}]`, `[]uint8{${bytes}}`, Buffer.from(value).toString("base64"));
  }
  const type = value instanceof LibraryObject ? nativeTypes[value.type.name] : undefined;
  return type === undefined ? toJson(value, toPatch) : new GoValue(type, `${value}`, `${value}`);
};

/** Wraps a value of an expression that upstream doesn't convert. `type` is its type in Go. */
const wrap = (type: string, value: Value): GoValue => {
  const json = toJson(value, toPatch);
  return new GoValue(type, formatGo(json), formatGoSyntax(json).replace(/^(\[\]|map\[string\])interface \{\}/, type));
};
