import { type AuthorizationAnswers, evaluateWithAuthorizer } from "postern/admission-policies/authorization";
import { findInvocations, type Invocation, type PolicyRequest } from "postern/admission-policies/invocations";
import { toMutationParameter } from "postern/admission-policies/parameters";
import { isCustomKind, listBindings, listPolicies } from "postern/admission-policies/policies";
import { PolicyStatusError } from "postern/admission-policies/types";
import { isSame, type JsonMap, toMap } from "postern/json";
import { evaluatePolicy } from "./evaluation.ts";
import { compilePolicy, type MutatingBinding, type MutatingPolicy, type MutatingPolicySettings } from "./policies.ts";
import { formatDenial, type PolicyDenial } from "./report.ts";

export interface DispatchResult {
  object: JsonMap;
  denials: readonly PolicyDenial[];
}

/** One evaluation of a policy in a round of mutations: the policy, one of its bindings, and a value of `params`. */
interface PlannedInvocation extends Invocation<MutatingBinding> {
  policy: MutatingPolicy;
}

/**
 * Applies policies to the object of a request, in one or two rounds. As in upstream, there is a second round if the
 * first one changed the object. The second round evaluates the conditions of all policies, but applies only mutations
 * of policies with reinvocationPolicy IfNeeded that the first round applied.
 */
export const applyMutatingPolicies = async (
  { policies }: MutatingPolicySettings,
  policyRequest: PolicyRequest,
  answers: AuthorizationAnswers,
  typedVariables: readonly string[],
): Promise<DispatchResult> => {
  const customKinds = policies.filter(isCustomKind);
  const denials: PolicyDenial[] = [];
  const reinvoked = new Set<string>();
  let object = policyRequest.request.object as JsonMap;

  for (const isFirst of [true, false]) {
    const before = object;
    const request = { ...policyRequest.request, object };
    const planned: PlannedInvocation[] = [];
    // Upstream chooses all policies by the object that the round begins with.
    for (const policy of listPolicies(policies, policyRequest.variant)) {
      const report = (error: string, binding?: MutatingBinding) =>
        denials.push({ message: formatDenial(policy, binding, error), reason: "Forbidden" });
      const { usesNamespace } = compilePolicy(policy);
      const bindings = listBindings(policies, policy);
      const invocations = findInvocations(policy, bindings, usesNamespace, { ...policyRequest, request }, report);
      for await (const invocation of invocations) {
        const params = toMutationParameter(invocation.params, policy.spec.paramKind);
        planned.push({ policy, ...invocation, params });
      }
    }
    for (const { policy, binding, ...values } of planned) {
      const key = formatKey(policy, binding, values.params);
      const context = { request, customKinds, typedVariables, mutates: isFirst || reinvoked.has(key) };
      const currentObject = object;
      const result = await evaluateWithAuthorizer(request, answers, (authorizer) =>
        evaluatePolicy(policy, currentObject, { ...authorizer, ...values }, context),
      );
      if (result.status) throw new PolicyStatusError(result.status);
      for (const error of result.errors)
        denials.push({ message: formatDenial(policy, binding, error), reason: "Invalid" });
      if (result.isMatched && policy.spec.reinvocationPolicy === "IfNeeded") reinvoked.add(key);
      object = result.object;
    }
    if (denials.length > 0 || isSame(before, object)) break;
  }
  return { object, denials };
};

/** Returns a key by which a reinvocation finds the same policy with the same binding and parameter object. */
const formatKey = (policy: MutatingPolicy, binding: MutatingBinding, params: unknown): string => {
  const { name, namespace } = toMap(toMap(params).metadata);
  return JSON.stringify([policy.metadata.name, binding.metadata.name, namespace, name]);
};
