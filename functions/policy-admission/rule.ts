import { isSame } from "postern/json";
import { cue, discovery, list } from "postern/needs";
import { completed, refusalOf } from "postern/policy/admission";
import { warningsOf } from "postern/policy/checks/warnings";
import { type Policy, policyGroup } from "postern/policy/kinds";
import { rule } from "postern/rule";
import { unsent } from "./entries.ts";

const settings = { scripts: true };

/** Read without the cache: a policy often follows right after the entries that it needs. */
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
    completed(policy, oldObject ?? undefined);
  },

  async validate(policy: Policy, { oldObject, settings, cue, mutating, validating, kinds }) {
    if (oldObject && isSame(policy.spec, oldObject.spec)) return;
    const refuse = await refusalOf(policy, settings.scripts ? cue : undefined);
    if (refuse !== undefined) return refuse;
    const said = await unsent(policy, kinds, policy.kind === "ClusterValidatePolicy" ? validating : mutating);
    return { warnings: [...warningsOf(policy), ...said] };
  },
});
