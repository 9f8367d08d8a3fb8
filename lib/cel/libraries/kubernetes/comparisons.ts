import { declareMethod, type FunctionDeclaration } from "../../functions.ts";
import { bool, int, type Type } from "../../types.ts";

/** Declares the methods that compare two values of a type of Kubernetes. */
export const declareComparisons = <Operand>(
  name: string,
  type: Type,
  compare: (left: Operand, right: Operand) => number,
): FunctionDeclaration[] => [
  declareMethod(
    "isGreaterThan",
    `${name}_is_greater_than`,
    [type, type],
    bool,
    (left, right) => compare(left, right) > 0,
  ),
  declareMethod("isLessThan", `${name}_is_less_than`, [type, type], bool, (left, right) => compare(left, right) < 0),
  declareMethod("compareTo", `${name}_compare_to`, [type, type], int, compare),
];
