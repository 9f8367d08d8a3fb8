import { type AppliedRule, applyOverridePoliciesInPlace } from "postern/policy/override";
import {
  buildPolicyRequest,
  countErrors,
  countMetrics,
  createPolicyCapabilities,
  createPolicyNeeds,
  isGovernedByPolicies,
  listPolicies,
  overridePolicyResources,
  policySettings,
} from "postern/policy/policy-rules";
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
  summary: "Changes objects as the override policies in the cluster or in postern.yaml say.",
  match: createPolicyMatch("CREATE", "UPDATE"),
  objectSelector: ({ objectSelector }) => objectSelector,
  // The API server calls the rule only once for a request, because a policy that appends to a list would append twice.
  reinvocationPolicy: "Never",
  timeoutSeconds: 5,
  // The rule has side effects, because kinitiras policies may send POST requests to other services.
  sideEffects: "NoneOnDryRun",
  settings: policySettings,
  choices: policySettingChoices,
  manifests: { policies: createManifestReader("OverridePolicy", "ClusterOverridePolicy") },
  // `postern` reads the cluster's policies, and adds the requests that the webhook must match to the settings.
  inspectForSettings: createWebhookRulesInspection(overridePolicyResources, "CREATE", "UPDATE"),
  checkSettings: findSettingsFault,
  needs: createPolicyNeeds(overridePolicyResources),

  async mutate(object: KubernetesObject, context) {
    if (!isGovernedByPolicies(context.request)) return;
    const policies = await listPolicies(overridePolicyResources, context);
    const applied = await countErrors(context, () =>
      applyOverridePoliciesInPlace(policies, buildPolicyRequest(object, context), createPolicyCapabilities(context)),
    );
    countMetrics(context, applied.flatMap(listMetrics));
  },
});

/** Lists the metrics of an applied policy rule. As in upstream, changes by the overriders `origin` aren't counted. */
const listMetrics = ({ policy, sources }: AppliedRule) => {
  const changing = sources.filter((source) => source !== "origin");
  const metrics = ["override_policy_matched_count", ...changing.map(() => "override_policy_override_count")];
  return metrics.map((metric) => ({ metric, policy }));
};
