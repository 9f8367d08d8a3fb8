import { createAuthorizationAnswers, evaluateWithAuthorizer } from "postern/admission-policies/authorization";
import { typedInput } from "postern/admission-policies/expressions";
import { createRequestVariables } from "postern/admission-policies/input";
import { findInvocations } from "postern/admission-policies/invocations";
import { isGovernedResource } from "postern/admission-policies/matching";
import { listBindings, listPolicies } from "postern/admission-policies/policies";
import { buildPolicyNeeds, findSettingsFault, type PolicySettings } from "postern/admission-policies/settings";
import { PolicyStatusError } from "postern/admission-policies/types";
import { buildPolicyVariants, listPolicyMatches } from "postern/admission-policies/variants";
import type { KubernetesObject } from "postern/review";
import { rule, type Verdict } from "postern/rule";
import { readPolicyDocuments } from "./documents.ts";
import { evaluatePolicy } from "./evaluation.ts";
import { compilePolicy, findExpressionFault, type ValidatingBinding, type ValidatingPolicy } from "./policies.ts";
import { PolicyReport } from "./report.ts";

type Settings = PolicySettings<ValidatingPolicy | ValidatingBinding>;
const needs = buildPolicyNeeds();

export default rule<
  KubernetesObject,
  Settings,
  typeof needs,
  { mostFailures: number; typedVariables: readonly string[] }
>({
  summary: "Refuses requests that ValidatingAdmissionPolicies in files beside postern.yaml forbid.",
  order: 38,
  upstreamPlugin: {
    plugin: "ValidatingAdmissionPolicy",
    worthwhile:
      "API servers from Kubernetes 1.30 on evaluate ValidatingAdmissionPolicies themselves. The rule is for clusters whose version lacks a CEL function, for clusters whose plugin is turned off, and for fleets that keep policies in one place.",
  },
  // `validate` gets the value for the cluster's Kubernetes version as `upstream`. From 1.37 on, API servers list up to
  // 50 failures in a refusal, not only 1, and handle some CEL variables (`typedVariables`) as Go structs.
  since: { "1.0": { mostFailures: 1, typedVariables: [] }, "1.37": { mostFailures: 50, typedVariables: typedInput } },
  match: (settings) => listPolicyMatches(settings, ["*"]),
  variants: (settings) =>
    buildPolicyVariants(settings, {
      operations: ["*"],
      findExpressionFault,
      refusesOnError: ({ spec }) => spec.validationActions.includes("Deny"),
    }),
  timeoutSeconds: 5,
  exactIntegers: true,
  settings: { policies: [], reads: [] },
  manifests: { policies: readPolicyDocuments },
  checkSettings: findSettingsFault,
  compileExpressions: ({ policies }, kubernetes) => {
    for (const policy of listPolicies(policies, undefined)) compilePolicy(policy, kubernetes);
  },
  needs,

  async validate(_: KubernetesObject, { settings: { policies }, may, upstream, ...policyRequest }): Promise<Verdict> {
    const { request, variant } = policyRequest;
    if (!isGovernedResource(request)) return;
    const report = new PolicyReport(upstream.mostFailures);
    const answers = createAuthorizationAnswers(may);
    const input = createRequestVariables(request);
    try {
      // Each policy has a webhook entry; `variant` is the name of the one that was called.
      for (const policy of listPolicies(policies, variant)) {
        const bindings = listBindings(policies, policy);
        const { usesNamespace } = compilePolicy(policy);
        const fail = (error: string, binding?: ValidatingBinding) =>
          report.addConfigurationError(policy, error, binding);
        for await (const invocation of findInvocations(policy, bindings, usesNamespace, policyRequest, fail)) {
          const { binding, ...values } = invocation;
          const evaluate = (authorizer: object) =>
            evaluatePolicy(policy, { ...input, ...authorizer, ...values }, upstream.typedVariables);
          // Evaluates again until all questions of the policy to the authorizer are answered.
          report.add(policy, binding, await evaluateWithAuthorizer(request, answers, evaluate));
        }
      }
    } catch (error) {
      if (error instanceof PolicyStatusError) return { refuse: error.status };
      throw error;
    }
    return report.toVerdict(request);
  },
});
