import type { Expression } from "./parser/syntax.ts";
import type { Type } from "./types.ts";
import type { Value } from "./values.ts";

/** A function of CEL. Each function is declared in one place, with its signatures, its evaluation and its cost. */
export interface FunctionDeclaration {
  /** The name, such as `startsWith` or `sets.contains`; for an operator, upstream's name, such as `_+_`. */
  readonly name: string;
  readonly overloads: readonly Overload[];
  /**
   * Returns the value for arguments of any types, if upstream has one implementation for all overloads. Without it, the
   * overload is called whose parameters have the types of the arguments at run time.
   */
  readonly evaluate?: Evaluate;
  readonly cost?: FunctionCost;
  /** For calls with a constant pattern as argument: compiles the pattern, and returns a function that uses it. */
  readonly precompile?: (source: string) => Evaluate;
  /** Finds an error that upstream's checker reports for a call `"text".format([args])` of a literal text and list. */
  readonly findIssue?: (
    text: string,
    args: readonly Expression[],
    types: ReadonlyMap<Expression, Type>,
  ) => { message: string; expression?: Expression } | undefined;
}

/**
 * Returns the cost of a call, by Kubernetes' own rule for functions of this name. If it returns undefined,
 * `Overload.cost` is the cost. `overload` is the id of the overload, if only one fits the static types.
 */
export type FunctionCost = (args: readonly Value[], result: Value, overload: string | undefined) => number | undefined;

/** One signature of a function. */
export interface Overload {
  /** Upstream's name of the overload, such as `string_to_int`. */
  readonly id: string;
  /** Whether it is called as a method: in `a.f(b)`, `a` is the first parameter. */
  readonly isMember: boolean;
  readonly parameters: readonly Type[];
  readonly result: Type;
  readonly evaluate?: Evaluate;
  /** Returns the cost of a call, if this is the only overload that fits the static types. Without it, the cost is 1. */
  readonly cost?: (args: readonly Value[], result: Value) => number;
}

/** Returns a function's value, or throws an EvaluationError. The arguments have the types of the parameters. */
// biome-ignore lint/suspicious/noExplicitAny: each overload takes values of its own parameters' types.
export type Evaluate = (...args: any[]) => Value;

export const overload = (
  id: string,
  parameters: readonly Type[],
  result: Type,
  evaluate?: Evaluate,
  cost?: Overload["cost"],
): Overload => ({ id, isMember: false, parameters, result, ...(evaluate && { evaluate }), ...(cost && { cost }) });

/** Declares an overload that is called as a method of its first parameter. */
export const member = (...args: Parameters<typeof overload>): Overload => ({ ...overload(...args), isMember: true });

/**
 * Declares a function with one overload. To declare a function with several overloads, declare it several times: the
 * environment combines declarations with the same name.
 */
export const declareFunction = (
  name: string,
  id: string,
  parameters: readonly Type[],
  result: Type,
  evaluate: Evaluate,
  cost?: FunctionCost,
): FunctionDeclaration => ({ name, overloads: [overload(id, parameters, result, evaluate)], ...(cost && { cost }) });

/** Declares a function with one overload that is called as a method of its first parameter. */
export const declareMethod = (...args: Parameters<typeof declareFunction>): FunctionDeclaration => {
  const declaration = declareFunction(...args);
  return { ...declaration, overloads: declaration.overloads.map((single) => ({ ...single, isMember: true })) };
};
