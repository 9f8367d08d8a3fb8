import { nameGoType } from "../go-types.ts";
import { formatValue } from "../libraries/value-text.ts";
import { FieldObject, findField, findInPatch, findMessageField, StructValue, toNative } from "../structs.ts";
import {
  CelObject,
  createNoSuchOverloadError,
  Double,
  EvaluationError,
  emptyOptional,
  findInMap,
  getDouble,
  getType,
  isDouble,
  isInt,
  isList,
  isMap,
  isObject,
  JoinedList,
  type List,
  Optional,
  Uint,
  type Value,
} from "../values.ts";
import type { Evaluator, Frame, Result } from "./evaluation.ts";

/** A value and the fields and indexes that are selected from it, one after another; or a choice of two such values. */
export type Attribute =
  | {
      readonly kind: "path";
      readonly root: Evaluator;
      /**
       * Whether upstream holds the root as a plain value of Go, such as a `map[string]interface {}`. So it does for
       * most variables; other values are of types of cel-go, such as `*types.baseMap`. Errors contain the type.
       */
      readonly hasGoType: boolean;
      readonly qualifiers: Qualifier[];
    }
  | {
      readonly kind: "conditional";
      readonly condition: Evaluator;
      readonly whenTrue: Attribute;
      readonly whenFalse: Attribute;
    };

/** The selection of a field or an index. */
interface Qualifier {
  readonly isOptional: boolean;
  /** The key; absent if `compute` computes it. */
  readonly key?: Key;
  readonly compute?: Evaluator;
  /** Whether upstream may hold the computed key as a plain value of Go. Errors then name its Go type, not cel-go's. */
  readonly hasGoType?: boolean;
  /** Whether the macro `has` tests the presence of the field. */
  readonly isTest?: boolean;
  /** Whether it is a field of a message: of a value with the static type `Object`, whose absent fields are null. */
  readonly inMessage?: boolean;
}

type Key = string | boolean | number | bigint | Uint | Double;

export const isKey = (value: Value): value is Key =>
  typeof value === "string" ||
  typeof value === "boolean" ||
  typeof value === "number" ||
  typeof value === "bigint" ||
  value instanceof Uint ||
  value instanceof Double;

/**
 * Returns the error for a value that can't be a key. It names the value's type in upstream, usually a type of cel-go.
 * But null, a list or a map that upstream holds as plain decoded JSON (`hasGoType`) has a plain type of Go.
 */
export const createKeyError = (value: Value, hasGoType: boolean): EvaluationError => {
  const plainType = value === null ? "<nil>" : isList(value) ? "[]interface {}" : "map[string]interface {}";
  const canBeJson = value === null || isList(value) || !(value instanceof CelObject);
  return new EvaluationError(`invalid qualifier type: ${hasGoType && canBeJson ? plainType : nameGoType(value)}`);
};

/**
 * Returns the field or element of a value with a key; undefined if there is none. With `inMessage`, the static type is
 * a message, whose absent fields are null; with `isTest`, for `has()` or an optional selection, they are undefined.
 */
const findPart = (object: Result, key: Key, isTest: boolean, inMessage: boolean): Result | undefined => {
  if (object instanceof EvaluationError) return object;
  if (inMessage) return findMessageField(object, key as string, isTest);
  // Objects from JSON come first, because they are the most frequent. Maps that an expression made come last.
  if (isObject(object)) return findInMap(object, key);
  if (isList(object)) return findElement(object, key);
  if (object instanceof FieldObject) return findField(object, key);
  if (object instanceof StructValue) return findInPatch(object, key, isTest);
  return isMap(object) ? findInMap(object, key) : undefined;
};

const getElement = (list: List, index: number) => (list instanceof JoinedList ? list.at(index) : list[index]);

/** Returns the element of a list at an index, which may be a number of any type; undefined if there is none. */
const findElement = (list: List, key: Key): Result | undefined => {
  if (typeof key === "number" && Number.isSafeInteger(key)) return getElement(list, key);
  // An int that is no safe integer is beyond the end of each list.
  if (isInt(key)) return undefined;
  const number = key instanceof Uint ? key.value : isDouble(key) ? getDouble(key) : undefined;
  if (number === undefined) return new EvaluationError(`unsupported index type '${getType(key).name}' in list`);
  const isIndex =
    typeof number === "bigint" ? number < 2n ** 63n : Number.isInteger(number) && Math.abs(number) < 2 ** 63;
  return isIndex
    ? getElement(list, Number(number))
    : new EvaluationError(`unsupported index value ${formatValue(key)} in list`);
};

const createMissingError = (object: Value, key: Key): EvaluationError =>
  new EvaluationError(`${isList(object) ? "index out of bounds" : "no such key"}: ${formatValue(key)}`);

/**
 * Applies the qualifiers from `start` on to a value. The caller has applied the qualifiers before them, and `isOptional`
 * says if one of those is optional. The result is an optional if the value or one of all qualifiers is.
 */
const select = (
  frame: Frame,
  root: Value,
  qualifiers: readonly Qualifier[],
  start: number,
  isOptional: boolean,
): Result => {
  let object: Result = root;
  // With `start` > 0, `root` is what the caller found in JSON, so it is no optional.
  if (start === 0 && root instanceof Optional) {
    if (root.value === undefined) return root;
    isOptional = true;
    // Older versions of cel-go convert the value of the optional to Go and back. If they can't, `object` is an error.
    object = frame.hasNewerOptionals ? root.value : toNative(root);
  }
  for (let index = start; index < qualifiers.length; index++) {
    const qualifier = qualifiers[index] as Qualifier;
    isOptional ||= qualifier.isOptional;
    // With `isTest`, the macro `has` tests whether the part is present. With `inMessage`, the object is a message.
    const { key = computeKey(frame, qualifier), isTest = false, inMessage = false } = qualifier;
    const isKnown = !(key instanceof EvaluationError);
    const part: Result | undefined = isKnown ? findPart(object, key, isTest || isOptional, inMessage) : key;
    if (isOptional) {
      if (part instanceof EvaluationError) return part;
      if (part === undefined) return emptyOptional;
    }
    frame.charge(1);
    // has(message.field) is true even if `part` is an error: the field is present, but its value can't be converted to
    // Go. But if `object`, in which the field is looked up, is itself such an error, this error is the result.
    const ignoresPartError = isTest && inMessage && !(object instanceof EvaluationError);
    if (part instanceof EvaluationError && !ignoresPartError) return part;
    if (isTest && !isOptional) object = part !== undefined;
    else if (part === undefined) return createMissingError(object as Value, key as Key);
    else object = part;
  }
  // Upstream's optional values may contain errors, too.
  return isOptional ? new Optional(object as Value) : object;
};

/** Computes a qualifier's key. If upstream may hold it as a plain value of Go (`hasGoType`), errors name a Go type. */
const computeKey = (frame: Frame, { compute, hasGoType = false }: Qualifier): Key | EvaluationError => {
  const value = (compute as Evaluator)(frame);
  if (value instanceof EvaluationError || isKey(value)) return value;
  return createKeyError(value, hasGoType);
};

/** Returns a function that resolves an attribute. It charges 1 for each selection. */
export const buildResolver = (attribute: Attribute): Evaluator => {
  if (attribute.kind === "conditional") {
    const { condition } = attribute;
    const [whenTrue, whenFalse] = [buildResolver(attribute.whenTrue), buildResolver(attribute.whenFalse)];
    return (frame) => {
      const value = condition(frame);
      if (value === true) return whenTrue(frame);
      if (value === false) return whenFalse(frame);
      return value instanceof EvaluationError ? value : createNoSuchOverloadError();
    };
  }
  const { root, qualifiers } = attribute;
  // The names of the first qualifiers, up to one that is no plain name or that `has()` tests.
  const selected = countFirst(qualifiers, (qualifier) => isPlainName(qualifier) && !qualifier.isTest);
  const names = qualifiers.slice(0, selected).map(({ key }) => key as string);
  const required = countFirst(qualifiers, ({ isOptional }) => !isOptional);
  // In has(a.b.c), the last qualifier, c, is tested for presence; the plain names before it are selected.
  const last = qualifiers.at(-1);
  const isLastLeft = selected === qualifiers.length - 1 && required > selected;
  const tested = isLastLeft && last && isPlainName(last) ? (last.key as string) : undefined;
  return (frame) => {
    let object = root(frame);
    if (object instanceof EvaluationError) return object;
    let index = 0;
    // This loop is a faster way for members of objects from JSON, which most selections are.
    for (; index < names.length; index++) {
      if (!isObject(object)) break;
      const part: Result | undefined = object[names[index] as string];
      if (index >= required && (part === undefined || part instanceof EvaluationError)) {
        frame.chargeSteps(index);
        return part ?? emptyOptional;
      }
      if (part === undefined) break;
      object = part as Value;
    }
    if (index > 0) frame.chargeSteps(index);
    if (tested !== undefined && index === names.length && isObject(object)) {
      frame.charge(1);
      return object[tested] !== undefined;
    }
    // An optional needs `select` even if no qualifiers are left: older versions of cel-go convert the value in it.
    if (index < qualifiers.length || object instanceof Optional)
      return select(frame, object, qualifiers, index, index > required);
    return index > required ? new Optional(object) : object;
  };
};

/** Returns how many qualifiers pass a test before the first one that doesn't. */
const countFirst = (qualifiers: readonly Qualifier[], test: (qualifier: Qualifier) => boolean): number => {
  const end = qualifiers.findIndex((qualifier) => !test(qualifier));
  return end < 0 ? qualifiers.length : end;
};

const isPlainName = ({ key }: Qualifier): boolean => typeof key === "string" && !(key in Object.prototype);

export const addQualifier = (attribute: Attribute, qualifier: Qualifier): void => {
  if (attribute.kind === "path") attribute.qualifiers.push(qualifier);
  else {
    addQualifier(attribute.whenTrue, qualifier);
    addQualifier(attribute.whenFalse, qualifier);
  }
};

/**
 * Reports whether upstream may hold an attribute's value as a plain value of Go, not as one of cel-go: if it is read
 * from a variable such as `object`, or from a message `Object{…}`. Errors then contain Go's type (see createKeyError).
 */
export const hasGoType = (attribute: Attribute): boolean =>
  attribute.kind === "path"
    ? attribute.hasGoType || attribute.qualifiers.at(-1)?.inMessage === true
    : hasGoType(attribute.whenTrue) || hasGoType(attribute.whenFalse);
