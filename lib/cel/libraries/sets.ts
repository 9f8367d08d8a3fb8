import { getActualSize, mostExpressionCost } from "../cost-formulas.ts";
import { type FunctionDeclaration, overload } from "../functions.ts";
import { bool, listOf, parameter } from "../types.ts";
import type { Value } from "../values.ts";
import { isSame } from "./standard.ts";

type List = readonly Value[];

const has = (list: List, value: Value): boolean => list.some((element) => isSame(value, element));
const contains = (list: List, part: List): boolean => part.every((value) => has(list, value));
const isEquivalent = (left: List, right: List): boolean => contains(left, right) && contains(right, left);
const intersects = (left: List, right: List): boolean => left.some((value) => has(right, value));

const list = listOf(parameter("T"));

/** Declares a function such as sets.contains, which compares each element with each. */
const declareSetFunction = (
  name: string,
  compare: (left: List, right: List) => boolean,
  costFactor = 1,
): FunctionDeclaration => {
  const count = ([left, right]: List) => getActualSize(left as Value) * getActualSize(right as Value) * costFactor;
  // If the comparison costs more than an expression may, it is not done: the evaluation ends with an error in any case.
  const evaluate = (left: List, right: List) =>
    left.length * right.length <= mostExpressionCost && compare(left, right);
  return {
    name: `sets.${name}`,
    overloads: [overload(`list_sets_${name}_list`, [list, list], bool, evaluate, (args) => 1 + count(args))],
  };
};

/** The functions of cel-go's sets library. */
export const setFunctions: readonly FunctionDeclaration[] = [
  declareSetFunction("contains", contains),
  declareSetFunction("equivalent", isEquivalent, /* costFactor */ 2),
  declareSetFunction("intersects", intersects),
];
