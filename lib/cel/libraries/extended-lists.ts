import { getActualSize, mostExpressionCost } from "../cost-formulas.ts";
import { type FunctionDeclaration, member, overload } from "../functions.ts";
import { nameGoType } from "../go-types.ts";
import { dyn, int, listOf, parameter } from "../types.ts";
import { type List as AnyList, EvaluationError, getType, isInt, isList, toArray, type Value } from "../values.ts";
import { findOrder } from "./lists.ts";
import { comparableTypes, isComparable, isSame, refuseOperand } from "./standard.ts";

type List = readonly Value[];
type Int = number | bigint;

const slice = (list: List, start: Int, end: Int): List => {
  const createError = (fault: string) => new EvaluationError(`cannot slice(${start}, ${end}), ${fault}`);
  if (start < 0 || end < 0) throw createError("negative indexes not supported");
  if (start > end) throw createError("start index must be less than or equal to end index");
  if (list.length < end) throw createError(`list is length ${list.length}`);
  return list.slice(Number(start), Number(end));
};

const describeType = (value: Value | undefined): string => {
  if (value === undefined) return "";
  const { name } = getType(value);
  if (name === "list" || name === "optional_type") return `${name}(dyn)`;
  return name === "map" ? "map(dyn, dyn)" : name;
};

/** Flattens a list. It accepts values of any type, because upstream doesn't check the types of arguments before. */
const flatten = (list: Value, depth?: Value): List => {
  if (!isList(list) || (depth !== undefined && !isInt(depth)))
    throw new EvaluationError(`no such overload: ${describeType(list)}.flatten(${describeType(depth)})`);
  if (depth !== undefined && depth < 0) throw new EvaluationError("level must be non-negative");
  return flattenTo(list, Number(depth ?? 1));
};

const flattenTo = (list: AnyList, depth: number): List =>
  depth === 0
    ? toArray(list)
    : toArray(list).flatMap((element) => (isList(element) ? flattenTo(element, depth - 1) : [element]));

/** Returns the list of integers from 0 to `size` - 1. */
export const createRange = (size: Int): List => {
  const list: Value[] = [];
  // If the list costs more than an expression may, it isn't filled: the evaluation ends with an error in any case. The
  // cost is computed from the length.
  if (size > mostExpressionCost) {
    // The first assignment prevents V8 from reserving memory for the elements.
    list.length = 2 ** 32 - 1;
    list.length = Math.min(Number(size), list.length);
    return list;
  }
  // To set the length first makes filling the list four times as fast.
  list.length = Math.max(Number(size), 0);
  for (let index = 0; index < list.length; index++) list[index] = index;
  return list;
};

const removeDuplicates = (list: List): List => {
  // The cost is higher than an expression's limit, so the evaluation ends with an error in any case.
  if (list.length ** 2 > mostExpressionCost) return list;
  const kept: Value[] = [];
  for (const value of list) if (!kept.some((other) => isSame(value, other))) kept.push(value);
  return kept;
};

/** Sorts a list by the keys of its elements, which have the same indexes as the elements. */
const sortByKeys = (value: Value, keys: List): List => {
  if (!isList(value)) throw new EvaluationError("no such overload: @sortByAssociatedKeys");
  const list = toArray(value);
  const [first] = keys;
  if (first === undefined) return list;
  if (!isComparable(first)) throw new EvaluationError("list elements must be comparable");
  const { name } = getType(first);
  if (keys.some((key) => getType(key).name !== name))
    throw new EvaluationError("list elements must have the same type");
  // Elements with equal keys keep their order. Go's sort guarantees that only for lists of at most twelve elements.
  const indices = [...keys.keys()].sort((left, right) => findOrder(keys[left] as Value, keys[right] as Value));
  return indices.map((index) => list[index] as Value);
};

const sort = (list: Value): List => (isList(list) ? sortByKeys(list, toArray(list)) : refuseOperand("sort", list));

// Upstream's functions that compute costs expect the declared types. If an argument has another type or is an error,
// they panic, and the whole expression fails, even in an operand of `||`.

const requireList = (value: Value | undefined): AnyList => {
  if (value !== undefined && isList(value)) return value;
  const name = nameGoType(value);
  const hasAdd = /^types\.(?:Bytes|Double|Duration|Int|String|Timestamp|Uint)$/.test(name);
  // Of the methods that the type lacks, Go names the first one by alphabet.
  const method = hasAdd ? "Contains" : "Add";
  throw new TypeError(`interface conversion: ${name} is not traits.Lister: missing method ${method}`);
};

const requireInt = (value: Value | undefined): number => {
  if (value !== undefined && isInt(value)) return Number(value);
  throw new TypeError(`interface conversion: ref.Val is ${nameGoType(value)}, not types.Int`);
};

const countList = (size: number, factor = 1): number => Math.trunc(size * factor) + 11;
export const countResult = (_args: List, result: Value): number => countList(getActualSize(result));

const countFlattening = (args: List): number => {
  const depth = args.length > 1 ? requireInt(args[1]) : 1;
  const cost = getActualSize(args[0] as Value) * (depth < 0 ? 1 : depth);
  // Upstream converts the cost from a double to 64 bits. For a larger number, Go's result is 2 ** 63.
  return countList(cost < 2 ** 64 ? cost : 2 ** 63);
};

/** Returns the cost of comparing all elements of a list with each other. */
const countComparisons = (value: Value | undefined): number => {
  const list = requireList(value);
  const first = list.at(0);
  // Upstream counts 2 for each pair, and 2.1 if the elements are texts or bytes.
  return countList(list.length ** 2, typeof first === "string" || first instanceof Uint8Array ? 2.1 : 2);
};
const countComparisonsInFirst = (args: List): number => countComparisons(args[0]);

const list = listOf(parameter("T"));

/** Version 3 of cel-go's lists library. The last argument of a declaration, such as countResult, computes the cost. */
export const extendedListFunctions: readonly FunctionDeclaration[] = [
  { name: "slice", overloads: [member("list_slice", [list, int, int], list, slice, countResult)] },
  {
    name: "flatten",
    overloads: [
      member("list_flatten", [listOf(list)], list, undefined, countFlattening),
      member("list_flatten_int", [listOf(dyn), int], listOf(dyn), undefined, countFlattening),
    ],
    evaluate: flatten,
  },
  {
    name: "sort",
    overloads: comparableTypes.map((type) =>
      member(`list_${type.name}_sort`, [listOf(type)], listOf(type), undefined, countComparisonsInFirst),
    ),
    evaluate: sort,
  },
  {
    // The macro `sortBy` calls this function. Expressions can't contain its name.
    name: "@sortByAssociatedKeys",
    overloads: comparableTypes.map((type) =>
      member(`list_${type.name}_sortByAssociatedKeys`, [list, listOf(type)], list, undefined, (args) =>
        countComparisons(args[1]),
      ),
    ),
    evaluate: sortByKeys,
  },
  { name: "lists.range", overloads: [overload("lists_range", [int], listOf(int), createRange, countResult)] },
  {
    name: "reverse",
    overloads: [member("list_reverse", [list], list, (values: List) => values.toReversed(), countResult)],
  },
  { name: "distinct", overloads: [member("list_distinct", [list], list, removeDuplicates, countComparisonsInFirst)] },
];
