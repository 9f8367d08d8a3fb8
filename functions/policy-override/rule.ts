import { type Applied, override } from "postern/policy/override";
import { bookOf } from "postern/policy/policy-index";
import {
  isJudged,
  overridePolicies,
  policiesOf,
  policyNeeds,
  policySettings,
  reachOf,
  subjectOf,
  tell,
  telling,
} from "postern/policy/policy-rules";
import { interceptionOf, surveyOf, unfitSettings, writtenPolicies } from "postern/policy/webhook-rules";
import type { KubernetesObject } from "postern/review";
import { rule } from "postern/rule";

export default rule({
  summary: "Changes objects as the override policies say that are in the cluster or in postern.yaml.",
  match: interceptionOf("CREATE", "UPDATE"),
  objectSelector: ({ objectSelector }) => objectSelector,
  // A policy may append to a list, and a second call would append again.
  reinvocationPolicy: "Never",
  timeoutSeconds: 5,
  // Policies may send POST requests to other services.
  sideEffects: "NoneOnDryRun",
  settings: policySettings,
  manifests: { policies: writtenPolicies("OverridePolicy", "ClusterOverridePolicy") },
  inspectForSettings: surveyOf(overridePolicies, "CREATE", "UPDATE"),
  checkSettings: unfitSettings,
  needs: policyNeeds(overridePolicies),

  async mutate(object: KubernetesObject, around) {
    if (!isJudged(around.request)) return;
    const policies = await policiesOf(overridePolicies, around);
    const applied = await telling(around, () => override(bookOf(policies), subjectOf(object, around), reachOf(around)));
    tell(around, applied.flatMap(happenings));
  },
});

/** As in upstream, a change by origin counts only as a match. */
const happenings = ({ policy, sources }: Applied) => {
  const changing = sources.filter((source) => source !== "origin");
  const metrics = ["override_policy_matched_count", ...changing.map(() => "override_policy_override_count")];
  return metrics.map((metric) => ({ metric, policy }));
};
