import { mostExpressionCost } from "../cel/cost-formulas.ts";
import {
  type CompiledExpression,
  compileExpression,
  createAdmissionEnvironment,
  type ExpressionResult,
  evaluateExpression,
  mostConditionsCost,
} from "../cel/kubernetes.ts";
import { FieldObject } from "../cel/program/program.ts";
import * as types from "../cel/types.ts";
import { EvaluationError, type TypedTest, type Value } from "../cel/values.ts";
import { quoteAsGo } from "../objects/go/quoted.ts";
import { joinErrors } from "../refusals.ts";
import { observe } from "./observations.ts";
import { createTypedTest } from "./typed-objects.ts";
import { type AnyPolicy, isFailingClosed, type PolicySpec } from "./types.ts";

/** The highest cost of all expressions of one pass together, such as all validations of a policy. */
export const mostPassCost = 10_000_000;

export interface PolicyExpression {
  readonly text: string;
  readonly compiled: CompiledExpression;
}

/** Compiles the expressions of one policy. The variables must be compiled first, in their order. */
export interface PolicyCompiler {
  /** The compiled variables by name. If two have the same name, the last one counts. */
  readonly variables: ReadonlyMap<string, PolicyExpression>;
  addVariable(name: string, text: string): PolicyExpression;
  /** The errors of all expressions that were compiled. */
  readonly errors: readonly string[];
  /** Compiles an expression. Its type must be one of `results`, if given. By default, it may use `authorizer`. */
  compile(text: string, results: readonly types.Type[] | undefined, hasAuthorizer?: boolean): PolicyExpression;
}

export interface PolicyCompilerOptions {
  isMutation?: boolean;
  hasVariables?: boolean;
  /** The minor version of Kubernetes whose functions expressions may use. By default, the newest. */
  kubernetes?: string | undefined;
}

/** Returns a compiler for the expressions of one policy. Later expressions can use the variables added so far. */
export const createPolicyCompiler = (
  { paramKind }: Pick<PolicySpec, "paramKind">,
  { isMutation = false, hasVariables = true, kubernetes }: PolicyCompilerOptions = {},
): PolicyCompiler => {
  // The environments read the types of variables from this map, which grows while variables are compiled.
  const variableTypes = new Map<string, types.Type>();
  const variables = new Map<string, PolicyExpression>();
  const errors: string[] = [];
  const parts = {
    hasParams: paramKind !== undefined,
    ...(hasVariables && { variables: variableTypes }),
    ...(kubernetes !== undefined && { kubernetes }),
  };
  const compile = (...expression: Parameters<typeof compileExpression>): CompiledExpression => {
    const compiled = compileExpression(...expression);
    if ("error" in compiled) errors.push(compiled.error);
    return compiled;
  };
  const variableEnvironment = createAdmissionEnvironment({ ...parts, hasAuthorizer: true });
  // With `isMutation`, expressions can use the types of patches. As in upstream, the variables of a policy can't.
  const environment = isMutation
    ? createAdmissionEnvironment({ ...parts, hasAuthorizer: true, isMutation })
    : variableEnvironment;
  const environmentWithoutAuthorizer = createAdmissionEnvironment(parts);
  return {
    variables,
    errors,
    addVariable: (name, text) => {
      const compiled = compile(text, variableEnvironment, undefined);
      variableTypes.set(name, "program" in compiled ? toDeclaredType(compiled.program.type) : types.dyn);
      const expression = { text, compiled };
      variables.set(name, expression);
      return expression;
    },
    compile: (text, results, hasAuthorizer = true) => {
      return { text, compiled: compile(text, hasAuthorizer ? environment : environmentWithoutAuthorizer, results) };
    },
  };
};

const scalars: readonly types.Type[] = [
  ...[types.bool, types.bytes, types.double, types.duration, types.int],
  ...[types.nullType, types.string, types.timestamp, types.uint],
];

/** Returns the type that upstream declares for a variable: the type of scalars, lists and maps, and dyn for others. */
const toDeclaredType = (type: types.Type): types.Type => {
  const [first, second] = type.parameters;
  if (type.kind === "list" && first) return types.listOf(toDeclaredType(first));
  if (type.kind === "map" && first && second) return types.mapOf(toDeclaredType(first), toDeclaredType(second));
  return scalars.some((scalar) => types.isSameType(scalar, type)) ? type : types.dyn;
};

/** The values of `object`, `request`, `params` and so on. Variables that a pass doesn't have are absent. */
export type PolicyInput = Readonly<Record<string, Value>>;

/** The variables that upstream evaluates as typed objects from Kubernetes 1.37 on, if their kind is built-in. */
export const typedInput: readonly string[] = ["object", "oldObject", "params", "request", "namespaceObject"];

/** The results of a pass, one for each expression. `exhausted` is the error if the pass ended because of its cost. */
export type PassResults = readonly (ExpressionResult | undefined)[] | { readonly exhausted: string };

/**
 * Evaluates a list of expressions in order, with a common budget: one pass. The first expression that uses a variable
 * evaluates it and pays for it. `typedVariables` names the members of `input` that upstream holds as Go structs: to
 * compare a map or a list in them (`isTyped`) with a value of another type is an error, instead of false.
 */
export const evaluatePass = (
  expressions: readonly (PolicyExpression | undefined)[],
  variables: PolicyCompiler["variables"],
  input: PolicyInput,
  budget: { left: number },
  typedVariables: readonly string[],
): PassResults => {
  const isTyped = createTypedTest(() => typedVariables.map((name) => input[name]));
  const composed = new ComposedVariables(variables, input, isTyped);
  const find = (name: string) =>
    name === "variables" ? composed : Object.hasOwn(input, name) ? input[name] : undefined;
  const results: (ExpressionResult | undefined)[] = [];
  for (const expression of expressions) {
    const takeCost = () => composed.takeCost();
    const result =
      expression && evaluateExpression(expression.text, expression.compiled, { find, isTyped }, budget, takeCost);
    if (result && "exhausted" in result) return result;
    results.push(result);
  }
  return results;
};

/**
 * The value of the CEL variable `variables` in one pass, which is the evaluation of a list of expressions. The
 * variables of a policy are members of it. Each is evaluated when an expression first reads it. `isTyped` reports
 * whether upstream holds a map or a list as a typed Go value, which can't be compared with values of other types.
 */
class ComposedVariables extends FieldObject {
  readonly type = types.struct("kubernetes.variables");
  readonly #variables: PolicyCompiler["variables"];
  readonly #input: PolicyInput;
  readonly #isTyped: TypedTest;
  readonly #values = new Map<string, Value | EvaluationError>();
  #cost = 0;

  constructor(variables: PolicyCompiler["variables"], input: PolicyInput, isTyped: TypedTest) {
    super();
    this.#isTyped = isTyped;
    this.#variables = variables;
    this.#input = input;
  }

  find(name: string): Value | undefined {
    const variable = this.#variables.get(name);
    if (variable === undefined) return undefined;
    // A value may be null.
    const cached = this.#values.get(name);
    const value = cached === undefined ? this.#evaluate(name, variable) : cached;
    this.#values.set(name, value);
    if (value instanceof EvaluationError) throw value;
    return value;
  }

  /** Returns the cost of the variables that were evaluated since the last call. */
  takeCost(): number {
    const cost = this.#cost;
    this.#cost = 0;
    return cost;
  }

  #evaluate(name: string, { compiled }: PolicyExpression): Value | EvaluationError {
    const createError = (verb: string, error: string) =>
      new EvaluationError(`composited variable ${quoteAsGo(name)} fails to ${verb}: ${error}`);
    if ("error" in compiled) return createError("compile", compiled.error);
    const find = (variable: string) =>
      variable === "variables" ? this : Object.hasOwn(this.#input, variable) ? this.#input[variable] : undefined;
    const outcome = compiled.program.evaluate({ find, isTyped: this.#isTyped }, { left: mostExpressionCost });
    this.#cost += outcome.cost;
    return "error" in outcome ? createError("evaluate", outcome.error) : outcome.value;
  }
}

/** Reports whether all matchConditions of a policy are true. Returns their errors if errors refuse the request. */
export const evaluateMatchConditions = (
  conditions: readonly PolicyExpression[],
  variables: PolicyCompiler["variables"],
  input: PolicyInput,
  policy: AnyPolicy,
  typedVariables: readonly string[],
): boolean | { error: string } => {
  const results = evaluatePass(conditions, variables, input, { left: mostConditionsCost }, typedVariables);
  const errors: string[] = [];
  if ("exhausted" in results) errors.push(results.exhausted);
  else {
    // For tests of policies. `firstIndex` is the index of the condition that gave the first result.
    observe(() => ({ policy, field: "matchConditions", firstIndex: 0, results }));
    for (const result of results)
      if (result && "error" in result) errors.push(result.error);
      else if (result && "value" in result && result.value === false) return false;
  }
  if (errors.length === 0) return true;
  return isFailingClosed(policy.spec) && { error: joinErrors(errors) };
};

/**
 * Returns a function that compiles the expressions of a policy for a minor version of Kubernetes. It caches the result
 * by the policy object, so later calls for the same object ignore the version.
 */
export const compileOnce = <P extends object, Compiled>(
  compile: (policy: P, kubernetesVersion?: string) => Compiled,
) => {
  const cache = new WeakMap<P, Compiled>();
  return (policy: P, kubernetesVersion?: string): Compiled => {
    const compiled = cache.get(policy) ?? compile(policy, kubernetesVersion);
    cache.set(policy, compiled);
    return compiled;
  };
};
