import { bookOf } from "postern/policy/policy-index";
import {
  isJudged,
  policiesOf,
  policyNeeds,
  policySettings,
  reachOf,
  refusalBy,
  subjectOf,
  tell,
  telling,
  validatePolicies,
} from "postern/policy/policy-rules";
import { type Validation, validate } from "postern/policy/validate";
import { interceptionOf, surveyOf, unfitSettings, writtenPolicies } from "postern/policy/webhook-rules";
import type { KubernetesObject } from "postern/review";
import { rule } from "postern/rule";

export default rule({
  summary: "Refuses what the validate policies refuse that are in the cluster or in postern.yaml.",
  match: interceptionOf("CREATE", "UPDATE", "DELETE"),
  objectSelector: ({ objectSelector }) => objectSelector,
  guards: true,
  timeoutSeconds: 5,
  // Policies may send POST requests to other services.
  sideEffects: "NoneOnDryRun",
  settings: policySettings,
  manifests: { policies: writtenPolicies("ClusterValidatePolicy") },
  inspectForSettings: surveyOf(validatePolicies, "CREATE", "UPDATE", "DELETE"),
  checkSettings: unfitSettings,
  needs: policyNeeds(validatePolicies),

  async validate(object: KubernetesObject, around) {
    if (!isJudged(around.request)) return;
    const policies = await policiesOf(validatePolicies, around);
    const { denied, matched } = await telling(around, () =>
      validate(bookOf(policies), subjectOf(object, around), reachOf(around)),
    );
    tell(around, matched.flatMap(happenings));
    return refusalBy(denied);
  },
});

const happenings = ({ policy, rejected }: Validation["matched"][number]) => [
  { metric: "validate_policy_matched_count", policy },
  ...(rejected ? [{ metric: "validate_policy_reject_count", policy }] : []),
];
