import type { Type } from "./types.ts";
import * as types from "./types.ts";

/**
 * A value of CEL at run time. Data from JSON is used as it is:
 * - A safe integer is an int. Other ints are bigints.
 * - A number that is no safe integer is a double. A double whose value is a safe integer is a `Double`.
 * - An array or a `JoinedList` is a list.
 * - A plain object is a map with strings as keys.
 * All other values are instances of classes that extend `CelObject`. Values are never changed.
 */
export type Value = null | boolean | string | number | bigint | Uint8Array | CelObject | readonly Value[] | ValueObject;

/** A list: an array, or two lists that are joined. */
export type List = readonly Value[] | JoinedList;

/** A map with strings as keys. Inherited members don't count. */
export interface ValueObject {
  readonly [key: string]: Value;
}

/** A value for which JavaScript has no type. */
export abstract class CelObject {
  abstract readonly type: Type;
  /** Reports whether a value of the same type is equal. */
  abstract equals(other: this): boolean;
}

/**
 * A value of one of Kubernetes' libraries, such as a quantity. It is an error to compare it with a value of another
 * type. Each comparison costs 1.
 */
export abstract class LibraryObject extends CelObject {
  /** Returns the size from which costs are computed. */
  get size(): number {
    return 1;
  }
}

/** A value that is equal to a value of its type with the same content. */
abstract class Scalar<Content> extends CelObject {
  readonly value: Content;
  constructor(value: Content) {
    super();
    this.value = value;
  }
  equals(other: this): boolean {
    return this.value === other.value;
  }
}

/**
 * A double of CEL whose value is a safe integer, such as 1.0. It needs a class, because the JavaScript number 1 is used
 * for CEL's int 1. Other doubles, such as 1.5, are JavaScript numbers.
 */
export class Double extends Scalar<number> {
  readonly type = types.double;
}

export class Uint extends Scalar<bigint> {
  readonly type = types.uint;
}

/** A span of time, with nanoseconds. */
export class Duration extends CelObject {
  readonly type = types.duration;
  /** Nanoseconds. */
  readonly nanos: bigint;
  constructor(nanos: bigint) {
    super();
    this.nanos = nanos;
  }
  equals(other: this): boolean {
    return this.nanos === other.nanos;
  }
}

/** A point in time, with nanoseconds since 1970. */
export class Timestamp extends CelObject {
  readonly type = types.timestamp;
  /** Nanoseconds. */
  readonly nanos: bigint;
  /** The offset of the time zone with which it was written, in minutes. It has an effect only on the text. */
  readonly offset: number;
  constructor(nanos: bigint, offset = 0) {
    super();
    this.nanos = nanos;
    this.offset = offset;
  }
  equals(other: this): boolean {
    return this.nanos === other.nanos;
  }
}

const anyOptional = types.optionalOf(types.dyn);
const anyType = types.typeOf();
const anyMap = types.mapOf(types.dyn, types.dyn);
const anyList = types.listOf(types.dyn);

/** An optional value; without `value` it is empty. */
export class Optional extends CelObject {
  readonly type = anyOptional;
  readonly value: Value | undefined;
  constructor(value?: Value) {
    super();
    this.value = value;
  }
  equals(other: this): boolean {
    if (this.value === undefined || other.value === undefined) return this.value === other.value;
    return isEqual(this.value, other.value);
  }
}
export const emptyOptional = new Optional();

/** A type as a value, such as the result of `type(1)`. Types are equal if they have the same name. */
export class TypeValue extends CelObject {
  readonly type = anyType;
  readonly of: Type;
  constructor(of: Type) {
    super();
    this.of = of;
  }
  equals(other: this): boolean {
    return this.of.name === other.of.name;
  }
}

/** A map that an expression made. Its keys are bools, ints, uints and strings. */
export class CelMap extends CelObject {
  readonly type = anyMap;
  /** The keys and values by the text of the key (see `toMapKey`), in the order in which they were added. */
  readonly entries: ReadonlyMap<string, readonly [key: Value, value: Value]>;
  constructor(entries: ReadonlyMap<string, readonly [key: Value, value: Value]>) {
    super();
    this.entries = entries;
  }
  equals(other: this): boolean {
    return isEqualMap(this, other);
  }
}

/** Two lists that are joined. The operator `+` makes it, and copies nothing, because its cost is 1 for any length. */
export class JoinedList extends CelObject {
  readonly type = anyList;
  readonly left: List;
  readonly right: List;
  readonly length: number;
  constructor(left: List, right: List) {
    super();
    this.left = left;
    this.right = right;
    this.length = left.length + right.length;
  }
  equals(other: this): boolean {
    return isEqual(this, other);
  }
  /** Yields the arrays of which the list consists, in order. */
  *listArrays(): Generator<readonly Value[]> {
    const stack: List[] = [this];
    for (let list = stack.pop(); list !== undefined; list = stack.pop())
      if (list instanceof JoinedList) stack.push(list.right, list.left);
      else yield list;
  }
  *[Symbol.iterator](): Generator<Value> {
    for (const array of this.listArrays()) yield* array;
  }
  /** Returns the element at an index; undefined if there is none. The index must be a safe integer. */
  at(index: number): Value | undefined {
    let [list, rest]: [List, number] = [this, index];
    while (list instanceof JoinedList) {
      const start: number = list.left.length;
      [list, rest] = rest < start ? [list.left, rest] : [list.right, rest - start];
    }
    return list[rest];
  }
}

/** An error in the evaluation of an expression, with upstream's message. */
export class EvaluationError extends Error {}

export const createNoSuchOverloadError = (): EvaluationError => new EvaluationError("no such overload");

const [minInt, maxInt] = [-(2n ** 63n), 2n ** 63n - 1n];
const maxUint = 2n ** 64n - 1n;

/** Converts a bigint to an int. Throws if it has more than 64 bits. */
export const toInt = (value: bigint): number | bigint => {
  if (value < minInt || value > maxInt) throw new EvaluationError("integer overflow");
  return Number.isSafeInteger(Number(value)) ? Number(value) : value;
};

/** Converts a bigint to a uint. Throws if it is negative or has more than 64 bits. */
export const toUint = (value: bigint): Uint => {
  if (value < 0n || value > maxUint) throw new EvaluationError("unsigned integer overflow");
  return new Uint(value);
};

export const toDouble = (value: number): number | Double => (Number.isSafeInteger(value) ? new Double(value) : value);

export const isInt = (value: Value): value is number | bigint =>
  typeof value === "bigint" || Number.isSafeInteger(value);

export const isDouble = (value: Value): value is number | Double =>
  value instanceof Double || (typeof value === "number" && !Number.isSafeInteger(value));

/** Returns the number of a double. */
export const getDouble = (value: number | Double): number => (typeof value === "number" ? value : value.value);

export const isList = (value: Value): value is List => Array.isArray(value) || value instanceof JoinedList;

/** Returns the elements of a list. The elements of a joined list are copied, so the array should not be kept. */
export const toArray = (list: List): readonly Value[] =>
  list instanceof JoinedList ? [...list.listArrays()].flat() : list;

const builtLists = new WeakSet<readonly Value[]>();

/** Marks a list that a literal or macro built. Inside another built list or map, upstream can't convert it to JSON. */
export const markBuiltList = <List extends readonly Value[]>(list: List): List => {
  builtLists.add(list);
  return list;
};

/** Reports whether an expression built a list element by element, with a literal or a macro such as map, not by `+`. */
export const isBuiltList = (list: List): boolean => !(list instanceof JoinedList) && builtLists.has(list);

/** Reports whether a value is an object from JSON. */
export const isObject = (value: Value): value is ValueObject => {
  if (typeof value !== "object" || value === null) return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
};

/** Reports whether a value is a map: an object from JSON, or a map that an expression made. */
export const isMap = (value: Value): value is ValueObject | CelMap => isObject(value) || value instanceof CelMap;

/** Returns the type of a value at run time. The types of elements, keys and values are dyn. */
export const getType = (value: Value): Type => {
  if (value === null) return types.nullType;
  if (typeof value === "boolean") return types.bool;
  if (typeof value === "string") return types.string;
  if (typeof value === "bigint") return types.int;
  // A double that is a safe integer, such as 1.0, is no number here, but a `Double`, which is a CelObject.
  if (typeof value === "number") return Number.isSafeInteger(value) ? types.int : types.double;
  if (value instanceof CelObject) return value.type;
  if (Array.isArray(value)) return anyList;
  return value instanceof Uint8Array ? types.bytes : anyMap;
};

/** Returns the text for a key of a map; undefined if it is no key. Numbers of different types are different keys. */
export const toMapKey = (key: Value): string | undefined => {
  // A quote at the beginning is enough to distinguish a text such as `1` from other keys.
  if (typeof key === "string") return `"${key}`;
  if (key === null || typeof key === "boolean" || isInt(key)) return `${key}`;
  if (key instanceof Uint) return `${key.value}u`;
  if (isDouble(key)) return `${getDouble(key)}d`;
  if (key instanceof TypeValue) return `type ${key.of.name}`;
  if (key instanceof Duration || key instanceof Timestamp) return `${key.type.name} ${key.nanos}`;
  return key instanceof LibraryObject && key.type.name.startsWith("net.") ? `${key.type.name} ${key}` : undefined;
};

/** Returns the value under a key of a map; undefined if there is none. */
export const findInMap = (map: ValueObject | CelMap, key: Value): Value | undefined => {
  if (!(map instanceof CelMap)) return typeof key === "string" && Object.hasOwn(map, key) ? map[key] : undefined;
  // Expressions often look for a key in `{}`.
  if (map.entries.size === 0) return undefined;
  const text = toMapKey(key);
  const entry = text === undefined ? undefined : map.entries.get(text);
  if (entry || typeof key === "string") return entry?.[1];
  // Go also looks for an int as a uint, for a uint as an int, and for a double as both, but never for another
  // number as a double.
  const integer = isInt(key) ? key : key instanceof Uint ? key.value : isDouble(key) ? getDouble(key) : Number.NaN;
  if (typeof integer === "number" && !Number.isInteger(integer)) return undefined;
  return (map.entries.get(`${BigInt(integer)}`) ?? map.entries.get(`${BigInt(integer)}u`))?.[1];
};

/** Lists the keys and values of a map, in the map's order. */
export const listEntries = (map: ValueObject | CelMap): Iterable<readonly [key: Value, value: Value]> =>
  map instanceof CelMap ? map.entries.values() : Object.entries(map);

/** Returns the number of code points of a text. */
export const countCodePoints = (text: string): number => {
  let count = text.length;
  for (let index = 0; index < text.length - 1; index++) {
    const isPair = (text.charCodeAt(index) & 0xfc00) === 0xd800 && (text.charCodeAt(index + 1) & 0xfc00) === 0xdc00;
    if (isPair) {
      count--;
      index++;
    }
  }
  return count;
};

/** Returns the size of a text, bytes, a list, or a map; undefined for other values. */
export const findSize = (value: Value): number | undefined => {
  if (typeof value === "string") return countCodePoints(value);
  if (isList(value) || value instanceof Uint8Array) return value.length;
  if (value instanceof CelMap) return value.entries.size;
  return isMap(value) ? Object.keys(value).length : undefined;
};

/**
 * Compares two numbers of any types. Returns -1, 0 or 1 if the left one is smaller, equal or larger; undefined if one
 * is not a number; NaN if one is NaN.
 */
export const compareNumbers = (left: Value, right: Value): number | undefined => {
  const [first, second] = [getNumber(left), getNumber(right)];
  if (first === undefined || second === undefined) return undefined;
  if (Number.isNaN(first) || Number.isNaN(second)) return Number.NaN;
  // Upstream converts an integer to a double before it compares it with a double, even if this loses digits. JavaScript
  // compares a bigint with a number exactly, so a bigint is converted here. Two objects, a Uint and a Double, need no
  // conversion: doubles are objects only if they are safe integers, and for these, the exact result is the same.
  const isInexact = typeof left !== typeof right && (isDouble(left) || isDouble(right));
  const [leftNumber, rightNumber] = isInexact ? [Number(first), Number(second)] : [first, second];
  if (leftNumber < rightNumber) return -1;
  return leftNumber > rightNumber ? 1 : 0;
};

const getNumber = (value: Value): number | bigint | undefined => {
  if (typeof value === "number" || typeof value === "bigint") return value;
  return value instanceof Double || value instanceof Uint ? value.value : undefined;
};

/** Reports whether a map or a list is part of a typed object of upstream. */
export type TypedTest = (value: object) => boolean;

/**
 * Reports whether two values of any types are equal. Throws if the left one can't be compared with the right one. A map
 * or a list for which `isTyped` returns true can't be compared with a value of another type.
 */
export const isEqual = (left: Value, right: Value, isTyped?: TypedTest): boolean => {
  if (left instanceof LibraryObject && right !== null) {
    if (!(right instanceof LibraryObject && left.type.name === right.type.name)) throw createNoSuchOverloadError();
    return left.equals(right);
  }
  if (left === right) return true;
  if (left === null || right === null || typeof left === "string" || typeof left === "boolean") return false;
  const order = compareNumbers(left, right);
  if (order !== undefined) return order === 0;
  if (left instanceof Uint8Array) return right instanceof Uint8Array && Buffer.compare(left, right) === 0;
  if ((isList(left) && !isList(right)) || (isMap(left) && !isMap(right))) {
    if (isTyped?.(left)) throw createNoSuchOverloadError();
    return false;
  }
  if (isList(left)) return isList(right) && isEqualList(left, right, isTyped);
  if (isMap(left)) return isMap(right) && isEqualMap(left, right, isTyped);
  return (
    left instanceof CelObject && right instanceof CelObject && left.type.name === right.type.name && left.equals(right)
  );
};

/**
 * Reports whether two parts of lists or maps are equal. If they can't be compared, upstream treats them as equal; but
 * in a list of a typed object as different, and in a map of a typed object as an error.
 */
const isEqualPart = (whole: List | ValueObject | CelMap, left: Value, right: Value, isTyped?: TypedTest) => {
  try {
    return isEqual(left, right, isTyped);
  } catch (error) {
    if (!(error instanceof EvaluationError)) throw error;
    if (!isTyped?.(whole)) return true;
    if (isList(whole)) return false;
    throw error;
  }
};

/**
 * Reports whether two lists have equal elements. As in kube-apiserver, elements that can't be compared count as equal;
 * but as different if kube-apiserver holds the list `left` in a typed struct of Go, which `isTyped` reports.
 */
const isEqualList = (left: List, right: List, isTyped?: TypedTest): boolean => {
  if (left.length !== right.length) return false;
  const others = right[Symbol.iterator](); // fast for a JoinedList, too; an index is not
  for (const element of left) if (!isEqualPart(left, element, others.next().value as Value, isTyped)) return false;
  return true;
};

/**
 * Reports whether two maps have equal values under the same keys. As in kube-apiserver, values that can't be compared
 * count as equal; but they are an error if `isTyped` reports that the map `left` is in a typed struct of Go.
 */
const isEqualMap = (left: ValueObject | CelMap, right: ValueObject | CelMap, isTyped?: TypedTest): boolean => {
  if (findSize(left) !== findSize(right)) return false;
  for (const [key, value] of listEntries(left)) {
    const other = findInMap(right, key);
    if (other === undefined || !isEqualPart(left, value, other, isTyped)) return false;
  }
  return true;
};
