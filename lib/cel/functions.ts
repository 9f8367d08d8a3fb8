import type { Expression } from "./parser/syntax.ts";
import type { Type } from "./types.ts";
import type { Value } from "./values.ts";

/**
 * A function of CEL. Functions are declared in one place each: with their signatures, what they return, and what they
 * cost.
 */
export interface FunctionDeclaration {
  /** The name in expressions, such as `startsWith` or `sets.contains`; for an operator upstream's name, such as `_+_`. */
  readonly name: string;
  readonly overloads: readonly Overload[];
  /**
   * Returns the value for arguments of any types, where upstream has one implementation for all overloads. Without it,
   * the overload whose parameters fit the arguments' types at run time is called.
   */
  readonly evaluate?: Evaluate;
  readonly cost?: FunctionCost;
  /** Returns the function for calls with a constant second argument, a pattern: it is compiled with the program. */
  readonly usePattern?: (source: string) => Evaluate;
  /** Finds what upstream's checker refuses in a call on a literal text with a literal list of arguments. */
  readonly findIssue?: (
    text: string,
    args: readonly Expression[],
    types: ReadonlyMap<Expression, Type>,
  ) => { message: string; expression?: Expression } | undefined;
}

/**
 * Returns the cost of a call as Kubernetes computes it, by the function's name. `Overload.cost` counts only if this has
 * no cost. `overload` is the name of the only overload that fits the static types.
 */
export type FunctionCost = (args: readonly Value[], result: Value, overload: string | undefined) => number | undefined;

/** One signature of a function. */
export interface Overload {
  /** Upstream's name of the overload, such as `string_to_int`. */
  readonly id: string;
  /** Whether it is called as `a.f(b)`; `a` is then the first parameter. */
  readonly isMember: boolean;
  readonly parameters: readonly Type[];
  readonly result: Type;
  readonly evaluate?: Evaluate;
  /** Returns the cost of a call, if this is the only overload that fits the static types; 1 without it. */
  readonly cost?: (args: readonly Value[], result: Value) => number;
}

/** Returns a function's value, or throws an EvaluationError. The arguments are of the types that were declared. */
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
 * Declares a function with one overload. A function with several is declared several times: the environment puts the
 * overloads of declarations with the same name together.
 */
export const declareFunction = (
  name: string,
  id: string,
  parameters: readonly Type[],
  result: Type,
  evaluate: Evaluate,
  cost?: FunctionCost,
): FunctionDeclaration => ({ name, overloads: [overload(id, parameters, result, evaluate)], ...(cost && { cost }) });

/** Declares a function like `declareFunction`, but it is called as a method of its first parameter. */
export const declareMethod = (...args: Parameters<typeof declareFunction>): FunctionDeclaration => {
  const declaration = declareFunction(...args);
  return { ...declaration, overloads: declaration.overloads.map((each) => ({ ...each, isMember: true })) };
};
