import { countTraversal, getCostSize } from "../cost-formulas.ts";
import type { Evaluate, FunctionDeclaration, Overload } from "../functions.ts";
import { toNative } from "../structs.ts";
import type { Type } from "../types.ts";
import {
  createNoSuchOverloadError,
  Double,
  EvaluationError,
  getType,
  isEqual,
  isInt,
  isList,
  isMap,
  LibraryObject,
  listEntries,
  Optional,
  type TypedTest,
  toArray,
  Uint,
  type Value,
} from "../values.ts";
import { type Evaluator, type Result, requireHashable, toArgument, toResult } from "./evaluation.ts";

/**
 * Returns the function of `&&` (with `decisive` false) or `||` (with `decisive` true). The first term with the decisive
 * value ends the evaluation. If there is none, the result is the first error; without errors, the opposite value.
 */
export const buildLogic = (terms: readonly Evaluator[], decisive: boolean): Evaluator => {
  return (frame) => {
    let error: EvaluationError | undefined;
    for (let index = 0; index < terms.length; index++) {
      const value = (terms[index] as Evaluator)(frame);
      if (value === decisive) return decisive;
      if (value !== !decisive) error ??= value instanceof EvaluationError ? value : createNoSuchOverloadError();
    }
    return error ?? !decisive;
  };
};

/** Returns the function of a loop's condition. As in upstream, only false ends the loop, not an error. */
export const buildLoopCondition =
  (term: Evaluator): Evaluator =>
  (frame) => {
    const value = term(frame);
    frame.charge(1);
    return value !== false;
  };

/** Returns the function of `==` (with `isPositive`) or of `!=`. */
export const buildEquality = (
  left: Evaluator,
  right: Evaluator,
  isPositive: boolean,
  hasTypedObjects: boolean,
): Evaluator => {
  return (frame) => {
    const first = left(frame);
    const second = right(frame);
    const result = compare(first, second, isPositive, hasTypedObjects ? frame.variables.isTyped : undefined);
    // Kubernetes has a rule of its own for `==` of its libraries' values, but none for `!=`.
    frame.charge(isPositive && first instanceof LibraryObject ? 1 : countComparison(first, second));
    return result;
  };
};

/** Returns the value of `left == right` (with `isPositive`) or `left != right`. `isTyped` tests for typed objects. */
const compare = (left: Result, right: Result, isPositive: boolean, isTyped: TypedTest | undefined): Result => {
  if (left instanceof EvaluationError) return left;
  if (right instanceof EvaluationError) return right;
  if (typeof left === "string" && typeof right === "string") return (left === right) === isPositive;
  // If one of two optionals contains an error, `==` is that error, but `!=` is true.
  const innerError = findInnerError(left, right);
  if (innerError) return isPositive ? innerError : true;
  try {
    return isEqual(left, right, isTyped) === isPositive;
  } catch (error) {
    const result = toResult(error);
    // If the values can't be compared, `==` is an error, but `!=` is true.
    return isPositive ? result : true;
  }
};

/** Returns the first error in two optionals (upstream allows errors). If one is empty, the other doesn't matter. */
const findInnerError = (left: Value, right: Value): EvaluationError | undefined => {
  if (!(left instanceof Optional && right instanceof Optional)) return undefined;
  if (left.value === undefined || right.value === undefined) return undefined;
  return [left.value as Result, right.value as Result].find((value) => value instanceof EvaluationError);
};

const countComparison = (left: Result, right: Result): number => {
  if (typeof left === "string" && typeof right === "string") {
    // This is a faster way to the cost of short texts: a tenth of the shorter one's length, rounded up, is 0 or 1.
    const length = Math.min(left.length, right.length);
    if (length <= 10) return Math.min(length, 1);
  }
  return countTraversal(Math.min(getCostSize(toArgument(left)), getCostSize(toArgument(right))));
};

/** Returns the function of `or` or `orValue`. It evaluates the second operand only if the first one is empty. */
export const buildAlternative =
  (left: Evaluator, right: Evaluator, isOr: boolean): Evaluator =>
  (frame) => {
    const value = left(frame);
    // In a newer cel-go, optionals are strict: `1.orValue(2)` is an error. In an older one, it is 1.
    if (!(value instanceof Optional))
      return frame.hasNewerOptionals && !(value instanceof EvaluationError) ? createNoSuchOverloadError() : value;
    if (value.value === undefined) return right(frame);
    return isOr ? value : value.value;
  };

/** Returns the function of `x in [1, 2]`, whose CEL cost is 0; undefined if the list has values that are no scalars. */
export const buildMembership = (element: Evaluator, list: readonly Value[]): Evaluator | undefined => {
  const members = new Set(list.map(toSetElement));
  if (members.has(undefined)) return undefined;
  return (frame) => {
    const value = element(frame);
    if (value instanceof EvaluationError) return value;
    // This ends the evaluation, as in upstream, if Go can't use the value as a key of a map.
    requireHashable(value);
    const member = toSetElement(value);
    return member !== undefined && members.has(member);
  };
};

/** Converts a text, bool or number to an element of a Set, the same for equal numbers; undefined for other values. */
const toSetElement = (value: Value): string | boolean | number | bigint | undefined => {
  if (typeof value === "string" || typeof value === "boolean" || typeof value === "number") return value;
  if (value instanceof Double) return value.value;
  const integer = value instanceof Uint ? value.value : value;
  if (typeof integer !== "bigint") return undefined;
  return Number.isSafeInteger(Number(integer)) ? Number(integer) : integer;
};

/**
 * Returns the function of a call. It evaluates the arguments. The first of them that is an error is the result.
 * `id` is the overload, if only one fits the static types. `constants` has the values of constant arguments.
 */
export const buildCall = (
  declaration: FunctionDeclaration,
  id: string | undefined,
  args: readonly Evaluator[],
  constants: readonly (Result | undefined)[],
): Evaluator => {
  const overload = declaration.overloads.find((candidate) => candidate.id === id);
  const apply = findImplementation(declaration, overload);
  const count = buildCost(declaration, overload);
  const pattern = constants[1];
  if (declaration.precompile && typeof pattern === "string")
    return buildEvaluator(args, convertFirstToText(declaration.precompile(pattern)), count, /* endsAtError */ true);
  const implementations = declaration.overloads.filter(({ evaluate }) => evaluate).length;
  const isDispatched = !declaration.evaluate && !overload?.evaluate && implementations > 1;
  // Upstream evaluates no more arguments after an error if the Go function that it calls takes any number of arguments:
  // for more than two, for an implementation chosen at run time, and for `format`. Otherwise, it evaluates them all.
  const endsAtError = args.length > 2 || isDispatched || declaration.name === "format";
  return buildEvaluator(args, apply, count, endsAtError);
};

/**
 * Returns the function of a call. With `endsAtError`, the call ends at the first argument that is an error. It is then
 * charged only if that is the last argument.
 */
const buildEvaluator = (
  args: readonly Evaluator[],
  apply: Evaluate,
  count: Overload["cost"] | undefined,
  endsAtError: boolean,
): Evaluator => {
  return (frame) => {
    // An array that is created with its final length is faster than one that grows.
    const values: Value[] = new Array(args.length);
    let result: Result | undefined;
    let computed = 0;
    while (computed < args.length) {
      const value = (args[computed] as Evaluator)(frame);
      values[computed++] = toArgument(value);
      if (!(value instanceof EvaluationError)) continue;
      result ??= value;
      if (endsAtError) break;
    }
    if (result === undefined)
      try {
        result = values.length === 2 ? apply(values[0], values[1]) : apply(...values);
      } catch (error) {
        result = toResult(error);
      }
    if (computed === args.length) {
      const cost = count ? count(values, toArgument(result)) : 1;
      frame.charge(cost);
      frame.countBytes(result, cost, values);
    }
    return result;
  };
};

/**
 * Wraps a function of regular expressions whose pattern is a constant. Its first argument may be a text, or, as in
 * upstream, a value that toNative converts to a text: a type, or an optional with a text.
 */
const convertFirstToText =
  (apply: Evaluate): Evaluate =>
  (value: Value, ...rest: Value[]) => {
    const text = toNative(value);
    // The arguments of `findAll` may end with a limit.
    const [_pattern, limit = 0] = rest;
    if (typeof text !== "string" || !isInt(limit)) throw createNoSuchOverloadError();
    return apply(text, ...rest);
  };

/**
 * Returns the function that computes the cost of a call: Kubernetes' cost of the function if there is one, else the
 * overload's cost. Returns undefined if the cost is 1.
 */
const buildCost = (declaration: FunctionDeclaration, overload: Overload | undefined): Overload["cost"] | undefined => {
  const { cost } = declaration;
  if (!cost) return overload?.cost;
  return (args, result) => cost(args, result, overload?.id) ?? overload?.cost?.(args, result) ?? 1;
};

/**
 * Returns the implementation of a call: the function that serves all overloads; or the overload that fits the static
 * types; or a function that finds the overload at run time.
 */
const findImplementation = (declaration: FunctionDeclaration, overload: Overload | undefined): Evaluate => {
  if (declaration.evaluate) return declaration.evaluate;
  const { name, overloads } = declaration;
  const candidates = (overload?.evaluate ? [overload] : overloads).flatMap(({ evaluate, parameters }) =>
    evaluate ? [{ evaluate: convertListsToArrays(evaluate, parameters), guards: parameters.map(buildGuard) }] : [],
  );
  const createError = (args: readonly Value[]) =>
    new EvaluationError(`no such overload: ${name}(${args.map((value) => getType(value).name).join(", ")})`);
  const [only] = candidates;
  if (only && candidates.length === 1 && only.guards.length <= 2) {
    const { evaluate, guards } = only;
    const [first = takeAny, second = takeAny] = guards;
    // Without spreading the arguments, which would take longer than most functions.
    if (guards.length === 1)
      return (value: Value) => {
        if (!first(value)) throw createError([value]);
        return evaluate(value);
      };
    if (guards.length === 2)
      return (left: Value, right: Value) => {
        if (!first(left) || !second(right)) throw createError([left, right]);
        return evaluate(left, right);
      };
  }
  return (...args: Value[]) => {
    for (const { evaluate, guards } of candidates)
      if (guards.length === args.length && guards.every((guard, index) => guard(args[index] as Value)))
        return evaluate(...args);
    throw createError(args);
  };
};

/** Wraps a function so that its parameters that are lists get arrays: a JoinedList, which `+` returns, is copied. */
const convertListsToArrays = (evaluate: Evaluate, parameters: readonly Type[]): Evaluate => {
  if (!parameters.some(({ kind }) => kind === "list")) return evaluate;
  return (...args: Value[]) =>
    evaluate(...args.map((value, at) => (parameters[at]?.kind === "list" && isList(value) ? toArray(value) : value)));
};

const takeAny = () => true;

/**
 * Returns a function that reports whether a value has a parameter's type. In a list or a map, only the first element is
 * tested.
 */
const buildGuard = ({ kind, name, parameters }: Type): ((value: Value) => boolean) => {
  const [first, second] = parameters.map(buildGuard);
  if (kind === "dyn" || kind === "parameter") return takeAny;
  if (kind === "string") return (value) => typeof value === "string";
  if (kind === "list" && first) return (value) => isList(value) && (value.length === 0 || first(value.at(0) as Value));
  if (kind === "map" && first && second)
    return (value) => {
      if (!isMap(value)) return false;
      for (const [key, member] of listEntries(value)) return first(key) && second(member);
      return true;
    };
  return (value) => getType(value).name === name;
};
