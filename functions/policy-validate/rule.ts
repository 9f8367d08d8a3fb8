import {
  buildPolicyRequest,
  countErrors,
  countMetrics,
  createPolicyCapabilities,
  createPolicyNeeds,
  isGovernedByPolicies,
  listPolicies,
  policySettings,
  toVerdict,
  validatePolicyResources,
} from "postern/policy/policy-rules";
import { evaluateValidatePolicies, type ValidationResult } from "postern/policy/validate";
import {
  createManifestReader,
  createPolicyMatch,
  createWebhookRulesInspection,
  findSettingsFault,
  policySettingChoices,
} from "postern/policy/webhook-rules";
import type { KubernetesObject } from "postern/review";
import { rule } from "postern/rule";

export default rule({
  summary: "Refuses requests that the validate policies in the cluster or in postern.yaml forbid.",
  match: createPolicyMatch("CREATE", "UPDATE", "DELETE"),
  objectSelector: ({ objectSelector }) => objectSelector,
  guards: true, // a security rule: hardening makes it fail closed
  timeoutSeconds: 5,
  // The rule has side effects, except in dry runs, because policies may send POST requests to other services.
  sideEffects: "NoneOnDryRun",
  settings: policySettings,
  choices: policySettingChoices,
  manifests: { policies: createManifestReader("ClusterValidatePolicy") },
  inspectForSettings: createWebhookRulesInspection(validatePolicyResources, "CREATE", "UPDATE", "DELETE"),
  checkSettings: findSettingsFault,
  needs: createPolicyNeeds(validatePolicyResources),

  async validate(object: KubernetesObject, context) {
    if (!isGovernedByPolicies(context.request)) return;
    const policies = await listPolicies(validatePolicyResources, context);
    const { denied, matched } = await countErrors(context, () =>
      evaluateValidatePolicies(policies, buildPolicyRequest(object, context), createPolicyCapabilities(context)),
    );
    countMetrics(context, matched.flatMap(listMetrics));
    return toVerdict(denied);
  },
});

/** Lists the metrics of a policy that was evaluated. */
const listMetrics = ({ policy, rejected }: ValidationResult["matched"][number]) => [
  { metric: "validate_policy_matched_count", policy },
  ...(rejected ? [{ metric: "validate_policy_reject_count", policy }] : []),
];
