import { declareMethod, type FunctionDeclaration, member } from "../functions.ts";
import { bool, double, duration, int, listOf, parameter, type Type, uint } from "../types.ts";
import {
  createNoSuchOverloadError,
  Double,
  Duration,
  EvaluationError,
  isList,
  isMap,
  listEntries,
  toArray,
  Uint,
  type Value,
} from "../values.ts";
import { ignoreErrors } from "./errors.ts";
import { add, comparableTypes, compareValues, isComparable, isSame } from "./standard.ts";

type List = readonly Value[];

/** Compares two values. Returns 0 if they can't be compared. */
export const findOrder = (left: Value, right: Value): number => ignoreErrors(() => compareValues(left, right)) ?? 0;

const requireComparable = (value: Value): Value => {
  if (!isComparable(value)) throw createNoSuchOverloadError();
  return value;
};

// In a list of values of several types, only the type of the first element was checked.

/**
 * Reports whether a list is sorted. Values that can't be compared with each other count as sorted. The first value,
 * before which there is none, is compared with itself, which also counts as sorted: only its type is tested.
 */
const isSorted = (list: List): boolean =>
  list.every(
    (value, index) => findOrder(index === 0 ? value : (list[index - 1] as Value), requireComparable(value)) <= 0,
  );

/** Declares `max` or `min`. `isBetter` gets the comparison of the best value so far with a new one. */
const declareExtreme = (name: string, isBetter: (order: number) => boolean): FunctionDeclaration => {
  const evaluate = ([first, ...others]: List): Value => {
    if (first === undefined) throw new EvaluationError(`${name} called on empty list`);
    return others.reduce(
      (best, value) => (isBetter(findOrder(best, requireComparable(value))) ? value : best),
      requireComparable(first),
    );
  };
  const overloads = comparableTypes.map((type) =>
    member(`list_${type.kind}_${name}_${type.kind}`, [listOf(type)], type, evaluate),
  );
  return { name, overloads, cost: countParts };
};

/** The sum of an empty list, by the type of the list's elements. */
const zeros: readonly (readonly [Type, Value])[] = [
  [int, 0],
  [uint, new Uint(0n)],
  [double, new Double(0)],
  [duration, new Duration(0n)],
];

/** Returns the cost of reading all parts of the first argument once, by Kubernetes' formula for functions of lists. */
export const countParts = ([value = null]: List): number => {
  if (typeof value === "string") return Math.floor(Buffer.byteLength(value) * 0.1);
  if (value instanceof Uint8Array) return Math.floor(value.length * 0.1);
  const parts = isList(value) ? toArray(value) : isMap(value) ? [...listEntries(value)].flat() : undefined;
  return parts ? parts.reduce((cost: number, part) => cost + countParts([part]), 0) : 1;
};

const a = parameter("A");
const findFirst = (list: List, value: Value) => list.findIndex((element) => isSame(element, value));
const findLast = (list: List, value: Value) => list.findLastIndex((element) => isSame(element, value));

/** Kubernetes' functions of lists. */
export const listFunctions: readonly FunctionDeclaration[] = [
  {
    name: "isSorted",
    overloads: comparableTypes.map((type) =>
      member(`list_${type.kind}_is_sorted_bool`, [listOf(type)], bool, isSorted),
    ),
    cost: countParts,
  },
  {
    name: "sum",
    overloads: zeros.map(([type, zero]) =>
      member(`list_${type.kind}_sum_${type.kind}`, [listOf(type)], type, (list: List) => list.reduce(add, zero)),
    ),
    cost: countParts,
  },
  // The best value so far is replaced if it is smaller (max) or larger (min) than the next value.
  declareExtreme("max", (orderOfBestAndNext) => orderOfBestAndNext < 0),
  declareExtreme("min", (orderOfBestAndNext) => orderOfBestAndNext > 0),
  declareMethod("indexOf", "list_a_index_of_int", [listOf(a), a], int, findFirst, countParts),
  declareMethod("lastIndexOf", "list_a_last_index_of_int", [listOf(a), a], int, findLast, countParts),
];
