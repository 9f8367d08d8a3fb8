import { mostExpressionCost } from "../cost-formulas.ts";
import { type FunctionDeclaration, overload } from "../functions.ts";
import { int, listOf } from "../types.ts";
import { EvaluationError, type Value } from "../values.ts";
import { countResult, createRange } from "./extended-lists.ts";

const createLimitedRange = (size: number | bigint): readonly Value[] => {
  if (size < 0) throw new EvaluationError(`lists.range: size must be non-negative, got ${size}`);
  if (size > mostExpressionCost)
    throw new EvaluationError(`lists.range: size ${size} exceeds maximum allowed (${mostExpressionCost})`);
  return createRange(size);
};

/** The function `lists.range` of cel-go 0.29 and later, which has a limit. */
export const limitedRangeFunctions: readonly FunctionDeclaration[] = [
  { name: "lists.range", overloads: [overload("lists_range", [int], listOf(int), createLimitedRange, countResult)] },
];
