import { createAuthorizerVariables } from "#lib/admission-policies/authorization.ts";
import { createTypedTest } from "#lib/admission-policies/typed-objects.ts";
import {
  type CompiledExpression,
  compileExpression,
  createAdmissionEnvironment,
  evaluateExpression,
  mostConditionsCost,
} from "#lib/cel/kubernetes.ts";
import { type Decide, MissingAuthorization } from "#lib/cel/libraries/kubernetes/authorizer.ts";
import { bool } from "#lib/cel/types.ts";
import type { Value } from "#lib/cel/values.ts";
import { getOwn } from "#lib/json.ts";
import type { AdmissionRequest } from "#lib/review.ts";
import type { CelEvaluator, CompiledCondition } from "./types.ts";

const compiledByMinor = new Map<string | undefined, Map<string, CompiledCondition>>();
const mostCompiled = 10_000;

/**
 * Compiles matchConditions to functions that evaluate them as the API server does. If a condition asks the authorizer,
 * and the answer isn't known, the function returns `unsupported`.
 */
export const celEvaluator: CelEvaluator = {
  compile: (expression, kubernetes) => {
    const compiled = compiledByMinor.get(kubernetes) ?? new Map<string, CompiledCondition>();
    compiledByMinor.set(kubernetes, compiled);
    const cached = compiled.get(expression);
    if (cached) return cached;
    const program = compile(expression, kubernetes);
    if (compiled.size >= mostCompiled) compiled.clear();
    compiled.set(expression, program);
    return program;
  },
  createBudget: () => ({ left: mostConditionsCost }),
};

const environments = new Map<string | undefined, ReturnType<typeof createAdmissionEnvironment>>();

/** Compiles a matchCondition as an API server of a minor does. If that refuses it, the result is always undecided. */
const compile = (expression: string, kubernetes: string | undefined): CompiledCondition => {
  const environment =
    environments.get(kubernetes) ??
    createAdmissionEnvironment({ hasAuthorizer: true, ...(kubernetes !== undefined && { kubernetes }) });
  environments.set(kubernetes, environment);
  const condition: CompiledExpression = compileExpression(expression, environment, [bool]);
  if ("error" in condition) {
    const unsupported = `the API server refuses it: ${condition.error}`;
    return () => ({ unsupported });
  }
  return ({ object, oldObject, readRequest, decide = failToDecide }, budget) => {
    let missing: MissingAuthorization | undefined;
    const noteMissing: Decide = (attributes) => {
      try {
        return decide(attributes);
      } catch (error) {
        if (error instanceof MissingAuthorization) missing = error;
        throw error;
      }
    };
    let authorizer: ReturnType<typeof createAuthorizerVariables> | undefined;
    // The casts to Value are safe: the values of a request are JSON.
    const find = (variable: string): Value | undefined => {
      if (variable === "object") return (object ?? null) as Value;
      if (variable === "oldObject") return (oldObject ?? null) as Value;
      if (variable === "request") return readRequest() as Value;
      if (variable === "namespaceObject") return null;
      // The request of a condition lacks the members of an AdmissionRequest that are empty.
      authorizer ??= createAuthorizerVariables(
        { userInfo: {}, resource: {}, ...readRequest() } as unknown as AdmissionRequest,
        noteMissing,
      );
      return getOwn(authorizer, variable) as Value | undefined;
    };
    // Built-in objects have Kubernetes' types: to compare a member with a value of another type is an error in CEL.
    const isTyped = createTypedTest(() => [object, oldObject, readRequest()]);
    const result = evaluateExpression(expression, condition, { find, isTyped }, budget);
    if ("value" in result) return { holds: result.value === true };
    return missing === undefined ? result : { unsupported: missing.message };
  };
};

const failToDecide: Decide = () => {
  throw new MissingAuthorization();
};
