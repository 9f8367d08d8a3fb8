import {
  evaluateMatchConditions,
  evaluatePass,
  mostPassCost,
  type PolicyInput,
} from "postern/admission-policies/expressions";
import { createRequestVariables, toConditionsInput } from "postern/admission-policies/input";
import { applyConfigurationValue, applyPatchValue, MutationError } from "postern/admission-policies/mutation";
import { observe } from "postern/admission-policies/observations";
import { type CustomKind, isFailingClosed, PolicyStatusError } from "postern/admission-policies/types";
import { getErrorMessage } from "postern/failure";
import { isSame, type JsonMap } from "postern/json";
import type { AdmissionRequest, Status } from "postern/review";
import { compilePolicy, type MutatingPolicy } from "./policies.ts";

/** The result of a policy for an object with one value of `params`. */
export interface MutationResult {
  object: JsonMap;
  /** Whether the policy's conditions hold. */
  isMatched: boolean;
  /** The errors that refuse the request. */
  errors: string[];
  /** A status that refuses the request at once. */
  status?: Status;
}

/** The input of an evaluation, without the object. */
export interface MutationContext {
  request: Omit<AdmissionRequest, "object">;
  customKinds: readonly CustomKind[];
  /** The names of the variables whose values upstream handles as Go structs, not as maps; see evaluatePass. */
  typedVariables: readonly string[];
  /** If false, only the policy's conditions are evaluated, and no mutation. */
  mutates: boolean;
}

/**
 * Evaluates a policy with one value of `params`: its conditions, then its mutations, each with its own cost budget.
 * After changes by mutations, the API server evaluates all policies again. A policy that must not be applied again has
 * `mutates: false` then: only its conditions are evaluated, because an error in a condition can refuse the request.
 */
export const evaluatePolicy = (
  policy: MutatingPolicy,
  original: JsonMap,
  values: PolicyInput,
  { request, customKinds, mutates, typedVariables }: MutationContext,
): MutationResult => {
  const { spec } = policy;
  const { conditions, variables, mutations } = compilePolicy(policy);
  const createInput = (object: JsonMap): PolicyInput => {
    return { ...createRequestVariables({ ...request, object }), ...values };
  };
  const matches = evaluateMatchConditions(
    conditions,
    variables,
    toConditionsInput(createInput(original)),
    policy,
    typedVariables,
  );
  const result: MutationResult = { object: original, isMatched: matches === true, errors: [] };
  if (typeof matches === "object") return { ...result, errors: [matches.error] };
  if (!matches || !mutates) return result;

  // `typedVariables` names the variables that upstream converts to Go structs. For mutations, it converts the objects
  // only if it has evaluated conditions before.
  const typedInMutations =
    conditions.length > 0 ? typedVariables : typedVariables.filter((name) => name !== "object" && name !== "oldObject");
  for (const [index, { isJsonPatch, expression }] of mutations.entries()) {
    const { object } = result;
    const results = evaluatePass(
      [expression],
      variables,
      createInput(object),
      { left: mostPassCost },
      typedInMutations,
    );
    // If the cost budget is exhausted, `results` has no value, but the error as `exhausted`.
    const [outcome] = "exhausted" in results ? [{ error: results.exhausted }] : results;
    try {
      if (outcome && "error" in outcome) throw new MutationError(outcome.error);
      if (outcome && "value" in outcome)
        result.object = isJsonPatch
          ? applyPatchValue(outcome.value, object, request.kind)
          : applyConfigurationValue(outcome.value, object, request.kind, customKinds);
      // In tests of policies, `postern` reports whether each mutation changed the object.
      observe(() => {
        return { policy, field: "mutations", firstIndex: index, results: [{ value: !isSame(object, result.object) }] };
      });
    } catch (error) {
      if (error instanceof PolicyStatusError) return { ...result, status: error.status };
      if (!(error instanceof MutationError)) throw error;
      observe(() => ({ policy, field: "mutations", firstIndex: index, results: [{ error: getErrorMessage(error) }] }));
      if (isFailingClosed(spec)) result.errors.push(error.message);
    }
  }
  return result;
};
