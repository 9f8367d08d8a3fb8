import { bookOf } from "#lib/policy/book.ts";
import { interceptionOf, surveyOf, unfitSettings, writtenPolicies } from "#lib/policy/interception.ts";
import { nameOf } from "#lib/policy/kinds.ts";
import { type Validation, validate } from "#lib/policy/validate.ts";
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
} from "#lib/policy/webhook.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { rule } from "#lib/rule.ts";

export default rule({
  summary: "Refuses what the validate policies refuse that are in the cluster or in postern.yaml.",
  match: interceptionOf("CREATE", "UPDATE", "DELETE"),
  objectSelector: ({ objectSelector }) => objectSelector,
  guards: true,
  timeoutSeconds: 5,
  // Policies may have somebody else asked by POST.
  sideEffects: "NoneOnDryRun",
  settings: policySettings,
  manifests: { policies: writtenPolicies("ClusterValidatePolicy") },
  survey: surveyOf(validatePolicies, "CREATE", "UPDATE", "DELETE"),
  checkSettings: unfitSettings,
  needs: policyNeeds(validatePolicies),

  async validate(object: KubernetesObject, around) {
    if (!isJudged(around.request)) return;
    const policies = await policiesOf(validatePolicies, around);
    const said = await telling(around, () => validate(bookOf(policies), subjectOf(object, around), reachOf(around)));
    const { denied, matched } = said;
    tell(around, matched.flatMap(happenings));
    return refusalBy(denied);
  },
});

const happenings = ({ policy, rejected }: Validation["matched"][number]) =>
  ["validate_policy_matched_count", ...(rejected ? ["validate_policy_reject_count"] : [])].map((metric) => {
    return { metric, policy: nameOf(policy) };
  });
