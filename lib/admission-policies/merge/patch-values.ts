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
 * Converts the value of an ApplyConfiguration to a patch, as upstream does: to JSON, with GoValues for the parts that
 * upstream leaves in their Go type, such as durations. Of nested lists and maps that an expression builds, upstream
 * converts only the outer one: `[[1]]` becomes `[GoValue]`. Throws an EvaluationError if a value has no form in JSON.
 */
export const toPatch = (value: Value): unknown => {
  if (value instanceof Optional) return value.value === undefined ? null : toPatch(value.value);
  if (isList(value)) return toArray(value).map(isBuiltList(value) ? convertElement : toPatch);
  return value instanceof CelMap ? convertMembers(listEntries(value), convertElement) : convertElement(value);
};

/** Converts the value of a patch's operation, as upstream does. Throws an EvaluationError if it has no form in JSON. */
export const toOperand = (value: Value): unknown => toJson(value, (message) => toProtobuf(toPatch(message)));

/**
 * Converts the result of `toPatch` as upstream does, through protobuf: all numbers become doubles. A GoValue, which
 * `toPatch` left unconverted, becomes `operand`, its JSON in a patch (base64 for bytes); without one, it is an error.
 */
const toProtobuf = (value: unknown): unknown => {
  if (typeof value === "bigint") return Number(value);
  if (Array.isArray(value)) return value.map(toProtobuf);
  if (isJsonMap(value))
    return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, toProtobuf(member)]));
  if (!(value instanceof GoValue)) return value;
  if (value.operand === undefined) throw new EvaluationError(`proto: invalid type: ${value.type}`);
  return value.operand;
};

const protobufNull = new GoValue("structpb.NullValue", /* text */ "NULL_VALUE", /* syntax */ "0");

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

/**
 * Converts an element of a list or a map that the expression builds: to JSON, or to a GoValue for a type that upstream
 * doesn't convert. `text` and `syntax` of a GoValue are its forms with Go's %v and %#v, which errors contain; `operand`
 * is its JSON in an operation of a JSON patch, absent if it has none.
 */
const convertElement = (value: Value): unknown => {
  // Upstream converts null to protobuf's NULL_VALUE, which isn't JSON. It converts an empty optional (below) to Go's
  // nil, which is null in JSON.
  if (value === null) return protobufNull;
  if (value instanceof StructValue)
    return value.type.name === "JSONPatch"
      ? new GoValue("*mutation.JSONPatchVal", /* text */ "JSONPatch", /* syntax */ "JSONPatch")
      : convertMembers(value.fields, toPatch);
  if (value instanceof Optional) return value.value === undefined ? null : convertElement(value.value);
  if (value instanceof TypeValue) return value.of.name;
  if (isList(value))
    return isBuiltList(value) ? wrapUnconverted("[]ref.Val", value) : toArray(value).map(convertElement);
  if (value instanceof CelMap) return wrapUnconverted("map[ref.Val]ref.Val", value);
  if (value instanceof Uint)
    return new GoValue(
      "uint64",
      /* text */ `${value.value}`,
      /* syntax */ `0x${value.value.toString(16)}`,
      /* operand */ Number(value.value),
    );
  if (value instanceof Duration)
    return new GoValue("time.Duration", /* text */ formatDuration(value), /* syntax */ `${value.nanos}`);
  if (value instanceof Timestamp) return wrapUnconverted("time.Time", value);
  if (value instanceof Uint8Array) {
    const bytes = Array.from(value, (byte) => `0x${byte.toString(16)}`).join(", ");
    return new GoValue(
      "[]uint8",
      /* text */ `[${value.join(" ")}]`,
      /* syntax */ `[]uint8{${bytes}}`,
      /* operand */ Buffer.from(value).toString("base64"),
    );
  }
  const type = value instanceof LibraryObject ? nativeTypes[value.type.name] : undefined;
  return type === undefined
    ? toJson(value, toPatch)
    : new GoValue(type, /* text */ `${value}`, /* syntax */ `${value}`);
};

/**
 * Returns a GoValue for a value that upstream leaves in its Go type `type`, without converting it to JSON. Errors show
 * its JSON in Go's syntax, but with this type: for instance `[]ref.Val{1}` instead of `[]interface {}{1}`.
 */
const wrapUnconverted = (type: string, value: Value): GoValue => {
  const json = toJson(value, toPatch);
  return new GoValue(
    type,
    /* text */ formatGo(json),
    /* syntax */ formatGoSyntax(json).replace(/^(\[\]|map\[string\])interface \{\}/, type),
  );
};
