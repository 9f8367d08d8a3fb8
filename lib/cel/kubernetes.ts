// The environment of CEL expressions in Kubernetes' admission: matchConditions and policies.
import { mergeSince, newestKubernetes, type Since, selectSince } from "../since.ts";
import type { AdmissionEnvironment, ExpressionContext } from "./contexts.ts";
import { mostExpressionCost } from "./cost-formulas.ts";
import { createEnvironment } from "./environment.ts";
import { checkExpression, createDeclarations } from "./expression-check.ts";
import type { FunctionDeclaration } from "./functions.ts";
import { conversionFunctions } from "./libraries/conversions.ts";
import { extendedListFunctions } from "./libraries/extended-lists.ts";
import { authorizerFunctions } from "./libraries/kubernetes/authorizer.ts";
import { cidrFunctions } from "./libraries/kubernetes/cidr.ts";
import { formatFunctions } from "./libraries/kubernetes/format.ts";
import { includesFunctions } from "./libraries/kubernetes/includes.ts";
import { ipFunctions } from "./libraries/kubernetes/ip.ts";
import { jsonPatchFunctions } from "./libraries/kubernetes/json-patch.ts";
import { quantityFunctions } from "./libraries/kubernetes/quantity.ts";
import { semverFunctions } from "./libraries/kubernetes/semver.ts";
import { urlFunctions } from "./libraries/kubernetes/url.ts";
import { limitedRangeFunctions } from "./libraries/limited-range.ts";
import { listFunctions } from "./libraries/lists.ts";
import { optionalTypeFunctions } from "./libraries/optionals.ts";
import { regexFunctions } from "./libraries/regex.ts";
import { setFunctions } from "./libraries/sets.ts";
import { standardFunctions } from "./libraries/standard.ts";
import { stringFunctions } from "./libraries/strings.ts";
import { timeFunctions } from "./libraries/time.ts";
import { twoVariableFunctions } from "./libraries/two-variables.ts";
import { type Budget, compile, type Program, type Variables } from "./program/program.ts";
import type { Type } from "./types.ts";
import { EvaluationError, type Value } from "./values.ts";

/** The highest cost of all matchConditions of a webhook or a policy together. */
export const mostConditionsCost = 2_500_000;

/** The functions of all versions. If several libraries have a function, its overloads are in upstream's order. */
const functions: readonly FunctionDeclaration[] = [
  ...standardFunctions,
  ...conversionFunctions,
  ...timeFunctions,
  ...urlFunctions,
  ...regexFunctions,
  ...listFunctions,
  ...authorizerFunctions,
  ...optionalTypeFunctions,
  ...quantityFunctions,
  ...stringFunctions,
  ...setFunctions,
  ...ipFunctions,
  ...cidrFunctions,
  ...formatFunctions,
  ...twoVariableFunctions,
];

/**
 * The changes by the minor version from which on new expressions may use them. New functions may be used one version
 * later than the version that has them, so that a cluster can be downgraded by one version. A function that is declared
 * again replaces overloads with the same id.
 */
const changes: Since<{
  functions?: readonly FunctionDeclaration[];
  hasSortBy?: boolean;
  hasQuotedNames?: boolean;
  hasNewerOptionals?: boolean;
  hasTypedObjects?: boolean;
}> = {
  "1.34": { functions: semverFunctions },
  "1.35": { functions: extendedListFunctions, hasSortBy: true },
  "1.37": {
    functions: limitedRangeFunctions,
    hasQuotedNames: true,
    hasNewerOptionals: true,
    hasTypedObjects: true,
  },
  "1.38": { functions: includesFunctions },
};

/** Returns the environment of expressions in a context. */
export const createAdmissionEnvironment = (context: ExpressionContext): AdmissionEnvironment => {
  const { kubernetes = newestKubernetes, isMutation = false } = context;
  const since = Object.values(selectSince(changes, kubernetes));
  const merged = mergeSince(changes, kubernetes);
  const { hasSortBy, hasQuotedNames = false, hasNewerOptionals = false, hasTypedObjects = false } = merged;
  const environment = createEnvironment({
    ...createDeclarations(context, hasSortBy),
    functions: [
      ...functions,
      ...since.flatMap(({ functions = [] }) => functions),
      ...(isMutation ? jsonPatchFunctions : []),
    ],
    hasQuotedNames,
    hasNewerOptionals,
    hasTypedObjects,
  });
  return { ...environment, context };
};

/** A compiled expression, or upstream's error. */
export type CompiledExpression = { program: Program } | { error: string };

/** Compiles an expression. Its type must be one of `results`; without `results`, it may have any type. */
export const compileExpression = (
  text: string,
  environment: AdmissionEnvironment,
  results: readonly Type[] | undefined,
): CompiledExpression => {
  const checked = checkExpression(text, environment, results);
  if ("error" in checked) return checked;
  try {
    return { program: compile(checked, environment) };
  } catch (error) {
    if (error instanceof EvaluationError) return { error: `program instantiation failed: ${error.message}` };
    throw error;
  }
};

/** The result of an expression. `exhausted` is upstream's error if several expressions cost too much together. */
export type ExpressionResult = { value: Value } | { error: string } | { exhausted: string };

/**
 * Evaluates an expression, and subtracts its cost from the budget that several expressions have together.
 * `takeFurtherCost` returns the cost of the variables that were computed for this expression.
 */
export const evaluateExpression = (
  text: string,
  compiled: CompiledExpression,
  variables: Variables,
  commonBudget: Budget,
  takeFurtherCost = () => 0,
): ExpressionResult => {
  if ("error" in compiled) return { error: `compilation error: ${compiled.error}` };
  const outcome = compiled.program.evaluate(variables, { left: mostExpressionCost });
  const cost = outcome.cost + takeFurtherCost();
  if (cost > commonBudget.left)
    return {
      exhausted: "validation failed due to running out of cost budget, no further validation rules will be run",
    };
  commonBudget.left -= cost;
  return "error" in outcome ? { error: `expression '${text}' resulted in error: ${outcome.error}` } : outcome;
};
