import { type Result, toResult } from "./program/evaluation.ts";
import type { Type } from "./types.ts";
import {
  CelMap,
  CelObject,
  createNoSuchOverloadError,
  EvaluationError,
  findInMap,
  getType,
  isEqual,
  isList,
  isMap,
  isObject,
  LibraryObject,
  type List,
  listEntries,
  Optional,
  TypeValue,
  toArray,
  type Value,
} from "./values.ts";

/** A struct whose fields are computed when an expression selects them. */
export abstract class FieldObject extends CelObject {
  /** Returns a field's value; undefined if there is no such field. Throws an EvaluationError if computing it fails. */
  abstract find(name: string): Value | undefined;
  equals(other: this): boolean {
    return this === other;
  }
}

/** The value of a message literal such as `Object.spec{…}`. */
export class StructValue extends CelObject {
  readonly type: Type;
  readonly fields: ReadonlyMap<string, Value>;
  constructor(type: Type, fields: ReadonlyMap<string, Value>) {
    super();
    this.type = type;
    this.fields = fields;
  }
  equals(other: this): boolean {
    return this === other || isSameFields([...this.fields], (name) => other.fields.get(name), other.fields.size);
  }
}

/** Reports whether two messages or maps have the same fields: the first has `entries`; `find` reads the second. */
const isSameFields = <Key>(
  entries: readonly (readonly [Key, Value])[],
  find: (key: Key) => Value | undefined,
  size: number,
): boolean => {
  const isSame = ([key, value]: readonly [Key, Value]) => {
    const other = find(key);
    return other !== undefined && isSameField(value, other);
  };
  return entries.length === size && entries.every(isSame);
};

/**
 * Reports whether fields of messages are equal. Upstream compares its own values with Go's reflect.DeepEqual. Two lists
 * are never equal then, because cel-go's lists contain functions, unless they are the same list.
 */
const isSameField = (left: Value, right: Value): boolean => {
  if (left === right) return true;
  if (isList(left) || getType(left).name !== getType(right).name) return false;
  if (!isMap(left) || !isMap(right)) return isEqual(left, right);
  return isSameFields([...listEntries(left)], (key) => findInMap(right, key), [...listEntries(right)].length);
};

/** Returns a field of an object; undefined if the object lacks the field. */
export const findField = (object: FieldObject, key: Value): Result | undefined => {
  if (typeof key !== "string") return createNoSuchOverloadError();
  try {
    return object.find(key);
  } catch (error) {
    return toResult(error);
  }
};

const patchTexts = ["op", "path", "from"];
const patchFields = [...patchTexts, "value"];

/** Reports whether a value is a map with a key that is no text. Upstream can't convert such a map to Go. */
const hasKeyThatIsNoText = (value: Value): boolean =>
  value instanceof CelMap && [...value.entries.values()].some(([key]) => typeof key !== "string");

/** Returns a field of a message or JSON object with static type `Object`; undefined if absent and tested by `has()`. */
export const findMessageField = (object: Value, name: string, isTest: boolean): Result | undefined => {
  // To read one field, upstream converts all fields to Go, and fails if it can't convert one of them.
  const isUnreadable = object instanceof StructValue && [...object.fields.values()].some(hasKeyThatIsNoText);
  if (!isUnreadable && (object instanceof StructValue || isObject(object))) {
    const value = object instanceof StructValue ? object.fields.get(name) : findInMap(object, name);
    return value === undefined && isTest ? undefined : toNativeField(value ?? null);
  }
  return isTest ? undefined : new EvaluationError(`cannot get field ${JSON.stringify(name)}`);
};

/**
 * Returns a field of a message whose static type is unknown. Upstream can do this only if it is a JSONPatch: for other
 * messages, returns undefined, as if they had no such field. An absent field is undefined, too, if `has()` tests it.
 */
export const findInPatch = (struct: StructValue, key: Value, isTest: boolean): Result | undefined => {
  if (struct.type.name !== "JSONPatch" || typeof key !== "string") return undefined;
  if (!patchFields.includes(key)) return new EvaluationError(`unsupported ${isTest ? "field" : "indexer"}: ${key}`);
  const value = struct.fields.get(key) ?? (patchTexts.includes(key) ? "" : null);
  return isTest && (value === "" || !struct.fields.has(key)) ? undefined : value;
};

/** The Go types, by CEL type, of values that cel-go can convert to Go, but not back to CEL. Its errors name them. */
export const nativeTypes: Readonly<Record<string, string>> = {
  "kubernetes.Quantity": "*resource.Quantity",
  "kubernetes.URL": "*url.URL",
  "kubernetes.Semver": "semver.Version",
  "net.CIDR": "netip.Prefix",
  "net.IP": "netip.Addr",
};

/**
 * Converts a value to a plain value of Go and back to CEL, as cel-go does with values in optionals and with fields of
 * messages. An optional becomes its value, a type its name, and a message a map, except a JSONPatch. Values of some
 * libraries can't be converted: the result is upstream's error.
 */
export const toNative = (value: Value): Result => {
  if (!(value instanceof CelObject)) return value;
  if (value instanceof Optional) return value.value === undefined ? null : toNative(value.value);
  if (value instanceof TypeValue) return value.of.name;
  if (value instanceof StructValue && value.type.name !== "JSONPatch")
    return Object.fromEntries(Array.from(value.fields, ([name, field]) => [name, toNativeField(field)]));
  if (!(value instanceof LibraryObject)) return value;
  const { name } = value.type;
  if (name.startsWith("kubernetes.authorization.")) return createNoSuchOverloadError();
  const type = nativeTypes[name];
  return type ? new EvaluationError(`unsupported conversion to ref.Val: (${type})${value}`) : value;
};

/** The converted values of fields. They are cached, because a selection costs only 1 and may be repeated very often. */
const nativeFields = new WeakMap<List | CelMap, Value>();

/** Converts a field's value, or its elements, to Go and back as cel-go does: an optional becomes the value in it. */
const toNativeField = (value: Value): Value => {
  // An element that can't be converted becomes an error, which counts only if the element is used.
  const convert = (element: Value) => toNative(element) as Value;
  if (!isList(value) && !(value instanceof CelMap)) return convert(value);
  const cached = nativeFields.get(value);
  const converted =
    cached ??
    (isList(value)
      ? toArray(value).map(convert)
      : new CelMap(new Map(Array.from(value.entries, ([text, [key, member]]) => [text, [key, convert(member)]]))));
  nativeFields.set(value, converted);
  return converted;
};

/** Returns the value of a message literal `JSONPatch{…}`, or an error if a field is unknown or no text. */
export const createPatch = (type: Type, fields: ReadonlyMap<string, Value>): Result => {
  for (const name of patchTexts) {
    const value = fields.get(name);
    if (value !== undefined && typeof value !== "string")
      return new EvaluationError(`unexpected type ${getType(value).name} for JSONPatchType '${name}' field`);
  }
  for (const name of fields.keys())
    if (!patchFields.includes(name)) return new EvaluationError(`unexpected JSONPatchType field: ${name}`);
  return new StructValue(type, fields);
};
