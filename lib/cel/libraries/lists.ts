import { type FunctionDeclaration, member } from "../functions.ts";
import type { Type } from "../types.ts";
import * as types from "../types.ts";
import {
  compareNumbers,
  createNoSuchOverloadError,
  Double,
  Duration,
  EvaluationError,
  getDouble,
  isDouble,
  isEqual,
  isInt,
  isList,
  isMap,
  listEntries,
  Timestamp,
  toDouble,
  toInt,
  toUint,
  Uint,
  type Value,
} from "../values.ts";
import { compareValues } from "./standard.ts";
import { addToTimestamp, createDuration } from "./time.ts";

/** The types whose values have an order. */
export const comparableTypes: readonly Type[] = [
  types.int,
  types.uint,
  types.double,
  types.bool,
  types.duration,
  types.timestamp,
  types.string,
  types.bytes,
];

/** Reports whether a value is of a type that has an order. */
export const isComparable = (value: Value): boolean =>
  typeof value === "string" ||
  typeof value === "boolean" ||
  value instanceof Uint8Array ||
  value instanceof Duration ||
  value instanceof Timestamp ||
  compareNumbers(value, 0) !== undefined;

/** Returns what a function returns; undefined if it throws an error of the expression, as for values that don't compare. */
const attempt = <Result>(compute: () => Result): Result | undefined => {
  try {
    return compute();
  } catch (error) {
    if (error instanceof EvaluationError) return undefined;
    throw error;
  }
};

/** Returns the order of two values; 0 if they have none. */
export const findOrder = (left: Value, right: Value): number => attempt(() => compareValues(left, right)) ?? 0;

/** Reports whether two values are equal; values that can't be compared are not. */
export const isSame = (left: Value, right: Value): boolean => attempt(() => isEqual(left, right)) ?? false;

const requireComparable = (value: Value): Value => {
  if (!isComparable(value)) throw createNoSuchOverloadError();
  return value;
};

// In a list of mixed types only the first element has the type that was checked. Elements without an order among each
// other count as sorted.

const isSorted = (list: readonly Value[]): boolean =>
  list.every(
    (value, index) => findOrder(index === 0 ? value : (list[index - 1] as Value), requireComparable(value)) <= 0,
  );

const findExtreme =
  (name: "max" | "min") =>
  (list: readonly Value[]): Value => {
    if (list.length === 0) throw new EvaluationError(`${name} called on empty list`);
    return list.reduce(
      (extreme, value) => {
        const order = findOrder(extreme, requireComparable(value));
        return (name === "min" ? order > 0 : order < 0) ? value : extreme;
      },
      requireComparable(list[0] as Value),
    );
  };

const add = (left: Value, right: Value): Value => {
  if (isInt(left) && isInt(right)) return toInt(BigInt(left) + BigInt(right));
  if (left instanceof Uint && right instanceof Uint) return toUint(left.value + right.value);
  if (isDouble(left) && isDouble(right)) return toDouble(getDouble(left) + getDouble(right));
  if (left instanceof Duration && right instanceof Duration)
    return createDuration(left.nanoseconds + right.nanoseconds);
  if (left instanceof Duration && right instanceof Timestamp) return addToTimestamp(right, left.nanoseconds);
  if (left instanceof Timestamp && right instanceof Duration) return addToTimestamp(left, right.nanoseconds);
  throw createNoSuchOverloadError();
};

const zeros: readonly (readonly [Type, Value])[] = [
  [types.int, 0],
  [types.uint, new Uint(0n)],
  [types.double, new Double(0)],
  [types.duration, new Duration(0n)],
];

/** Returns the cost of reading all parts of a value once, as Kubernetes counts it for functions of lists. */
const countParts = (value: Value): number => {
  if (typeof value === "string") return Math.floor(Buffer.byteLength(value) * 0.1);
  if (value instanceof Uint8Array) return Math.floor(value.length * 0.1);
  let cost = 0;
  if (isList(value)) for (const element of value) cost += countParts(element);
  else if (isMap(value)) for (const [key, member] of listEntries(value)) cost += countParts(key) + countParts(member);
  else cost = 1;
  return cost;
};

/** Returns the cost of `indexOf` and similar functions, of lists and of texts. */
export const countListTraversal = ([list]: readonly Value[]): number => countParts(list as Value);

const a = types.parameter("A");

/** Kubernetes' functions of lists. */
export const listFunctions: readonly FunctionDeclaration[] = [
  {
    name: "isSorted",
    overloads: comparableTypes.map((type) =>
      member(`list_${type.kind}_is_sorted_bool`, [types.listOf(type)], types.bool, isSorted),
    ),
    cost: countListTraversal,
  },
  {
    name: "sum",
    overloads: zeros.map(([type, zero]) =>
      member(`list_${type.kind}_sum_${type.kind}`, [types.listOf(type)], type, (list: readonly Value[]) =>
        list.reduce(add, zero),
      ),
    ),
    cost: countListTraversal,
  },
  ...(["max", "min"] as const).map((name) => ({
    name,
    overloads: comparableTypes.map((type) =>
      member(`list_${type.kind}_${name}_${type.kind}`, [types.listOf(type)], type, findExtreme(name)),
    ),
    cost: countListTraversal,
  })),
  {
    name: "indexOf",
    overloads: [
      member("list_a_index_of_int", [types.listOf(a), a], types.int, (list: readonly Value[], value: Value) =>
        list.findIndex((element) => isSame(element, value)),
      ),
    ],
    cost: countListTraversal,
  },
  {
    name: "lastIndexOf",
    overloads: [
      member("list_a_last_index_of_int", [types.listOf(a), a], types.int, (list: readonly Value[], value: Value) =>
        list.findLastIndex((element) => isSame(element, value)),
      ),
    ],
    cost: countListTraversal,
  },
];
