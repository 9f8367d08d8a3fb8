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

/** Compares texts by their code points, which differ in order from JavaScript's units. */
const compareTexts = (left: string, right: string): number => {
  if (/[\ud800-\udfff]/.test(left) || /[\ud800-\udfff]/.test(right))
    return Buffer.compare(Buffer.from(left), Buffer.from(right));
  return left < right ? -1 : Number(left > right);
};

/** Compares two values; returns undefined if they have no order, as numbers with NaN. */
export const compareValues = (left: Value, right: Value): number | undefined => {
  if (typeof left === "string") return typeof right === "string" ? compareTexts(left, right) : undefined;
  if (typeof left === "boolean") return typeof right === "boolean" ? Number(left) - Number(right) : undefined;
  if (left instanceof Uint8Array) return right instanceof Uint8Array ? Buffer.compare(left, right) : undefined;
  if (
    (left instanceof Duration && right instanceof Duration) ||
    (left instanceof Timestamp && right instanceof Timestamp)
  )
    return left.nanoseconds < right.nanoseconds ? -1 : Number(left.nanoseconds > right.nanoseconds);
  const order = compareNumbers(left, right);
  return Number.isNaN(order) ? undefined : order;
};

/** Reports whether a value is of a type that has an order. */
export const isComparable = (value: Value): boolean => compareValues(value, value) !== undefined || isDouble(value);

const requireComparable = (value: Value): Value => {
  if (!isComparable(value)) throw createNoSuchOverloadError();
  return value;
};

// In a list of mixed types only the first element has the type that was checked. Elements without an order among each
// other count as sorted.

const isSorted = (list: readonly Value[]): boolean =>
  list.every((value, index) => {
    requireComparable(value);
    const order = index === 0 ? undefined : compareValues(list[index - 1] as Value, value);
    return order === undefined || order <= 0;
  });

const findExtreme =
  (name: "max" | "min") =>
  (list: readonly Value[]): Value => {
    if (list.length === 0) throw new EvaluationError(`${name} called on empty list`);
    return list.reduce(
      (extreme, value) => {
        const order = compareValues(extreme, requireComparable(value)) ?? 0;
        return (name === "min" ? order > 0 : order < 0) ? value : extreme;
      },
      requireComparable(list[0] as Value),
    );
  };

const add = (left: Value, right: Value): Value => {
  if (isInt(left) && isInt(right)) return toInt(BigInt(left) + BigInt(right));
  if (left instanceof Uint && right instanceof Uint) return toUint(left.value + right.value);
  if (isDouble(left) && isDouble(right)) return toDouble(getDouble(left) + getDouble(right));
  if (!(left instanceof Duration && right instanceof Duration)) throw createNoSuchOverloadError();
  const nanoseconds = left.nanoseconds + right.nanoseconds;
  if (BigInt.asIntN(64, nanoseconds) !== nanoseconds) throw new EvaluationError("integer overflow");
  return new Duration(nanoseconds);
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
        list.findIndex((element) => isEqual(element, value)),
      ),
    ],
    cost: countListTraversal,
  },
  {
    name: "lastIndexOf",
    overloads: [
      member("list_a_last_index_of_int", [types.listOf(a), a], types.int, (list: readonly Value[], value: Value) =>
        list.findLastIndex((element) => isEqual(element, value)),
      ),
    ],
    cost: countListTraversal,
  },
];
