import { cue, discovery, list } from "#lib/needs.ts";
import { isSame } from "#lib/objects/same.ts";
import { completed, refusalOf } from "#lib/policy/admission.ts";
import { warningsOf } from "#lib/policy/checks/warnings.ts";
import { type Policy, policyGroup } from "#lib/policy/kinds.ts";
import { renderedCondition } from "#lib/policy/rendering/condition.ts";
import { renderedOverride } from "#lib/policy/rendering/override.ts";
import { rule } from "#lib/rule.ts";
import { unsent } from "./entries.ts";

const settings = { scripts: true };
const renderings = { renderedOverride, renderedCondition };

/** As they are now: a policy often follows right after the entries that it needs. */
const configurations = (resource: string) => list({ group: "admissionregistration.k8s.io", resource }, { maxAge: 0 });

export default rule({
  summary: "Completes policies when they are written, and refuses those that could not do what they say.",
  match: [
    {
      apiGroups: [policyGroup],
      apiVersions: ["v1alpha1"],
      resources: ["overridepolicies", "clusteroverridepolicies", "clustervalidatepolicies"],
      operations: ["CREATE", "UPDATE"],
    },
  ],
  guards: true,
  timeoutSeconds: 5,
  settings,
  needs: {
    cue: cue(({ scripts }: typeof settings) => scripts),
    mutating: configurations("mutatingwebhookconfigurations"),
    validating: configurations("validatingwebhookconfigurations"),
    kinds: discovery(),
  },

  mutate(policy: Policy, { oldObject }) {
    completed(policy, renderings, oldObject ?? undefined);
  },

  async validate(policy: Policy, { oldObject, settings, cue, mutating, validating, kinds }) {
    if (oldObject && isSame(policy.spec, oldObject.spec)) return;
    const compile = settings.scripts ? cue : undefined;
    const refuse = await refusalOf(policy, compile, oldObject ?? undefined, renderings);
    if (refuse !== undefined) return refuse;
    const said = await unsent(policy, kinds, policy.kind === "ClusterValidatePolicy" ? validating : mutating);
    return { warnings: [...warningsOf(policy), ...said] };
  },
});
