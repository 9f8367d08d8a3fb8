import { Environment, EvaluationError } from "@marcbachmann/cel-js";
import type { CelEvaluator, CompiledCondition, MatchConditionResult } from "../types.ts";
import {
  type CelNode,
  compilePattern,
  createCostBudgetCheck,
  explainUnsupportedCel,
  renameMethod,
} from "./expressions.ts";
import { measureValue, toCelValue } from "./values.ts";

/** `matches` is renamed to this function in CEL: JavaScript's patterns differ from RE2, and may take very long. */
const renamedMatches = "matchesPattern";

const environment = new Environment({
  unlistedVariablesAreDyn: true,
  enableOptionalTypes: true,
  homogeneousAggregateLiterals: false,
}).registerFunction(`string.${renamedMatches}(string): bool`, (text: string, source: string) =>
  compilePattern(source)?.test(text),
);

/** The API server's cost limit for one CEL expression, in the API server's cost units. */
const mostCost = 1_000_000;

const compiled = new Map<string, CompiledCondition>();
const mostCompiled = 10_000;

/**
 * Evaluates CEL with the API server's outcome, or returns `unsupported`: for functions that are missing or differ here,
 * for the authorizer, for numbers that JavaScript doesn't hold exactly, and for expressions that might exceed the cost
 * limit.
 */
export const celEvaluator: CelEvaluator = {
  compile: (expression) => {
    const known = compiled.get(expression);
    if (known) return known;
    const made = compile(expression);
    if (compiled.size >= mostCompiled) compiled.clear();
    compiled.set(expression, made);
    return made;
  },
};

const createUnsupported = (why: string): CompiledCondition => {
  return () => ({ unsupported: why });
};

const compile = (expression: string): CompiledCondition => {
  let evaluate: ReturnType<Environment["parse"]>;
  try {
    evaluate = environment.parse(expression);
  } catch {
    return createUnsupported("the expression isn't understood here");
  }
  const root = evaluate.ast as CelNode;
  const unsupportedIn = explainUnsupportedCel(root);
  if (unsupportedIn !== undefined) return createUnsupported(unsupportedIn);
  renameMethod(root, "matches", renamedMatches);
  const { valid, type } = evaluate.check();
  if (!valid) return createUnsupported("the types in the expression aren't understood here");
  if (type !== "bool" && type !== "dyn") return createUnsupported(`the expression is no condition but a ${type}`);

  const isAffordable = createCostBudgetCheck(root, mostCost);
  return ({ object, oldObject, request }): MatchConditionResult => {
    const sizes = [measureValue(object), measureValue(oldObject)];
    if (!sizes.every(({ isExact }) => isExact))
      return { unsupported: "the object has numbers that can't be represented exactly here" };
    if (!isAffordable(sizes)) return { unsupported: "it may cost more than an API server allows" };
    try {
      const variables = { object: toCelValue(object), oldObject: toCelValue(oldObject), request: toCelValue(request) };
      const result: unknown = evaluate({ ...variables, namespaceObject: null });
      return typeof result === "boolean" ? { holds: result } : { unsupported: "the expression is no condition" };
    } catch (error) {
      const text = error instanceof EvaluationError ? toServerError(error) : undefined;
      return text === undefined ? { unsupported: "it can't be evaluated here" } : { error: text };
    }
  };
};

/** Returns the API server's text for an error that its CEL evaluator has, too; undefined for all other errors. */
const toServerError = ({ code, summary }: EvaluationError): string | undefined => {
  if (code === "no_such_key") return summary.replace("No such key", "no such key");
  if (code === "index_out_of_bounds") return `index out of bounds: ${/index (-?\d+)/.exec(summary)?.[1] ?? "?"}`;
  if (code === "division_by_zero") return "division by zero";
  return code === "modulo_by_zero" ? "modulus by zero" : undefined;
};
