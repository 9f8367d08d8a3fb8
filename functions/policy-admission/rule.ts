import { getErrorMessage } from "postern/failure";
import { isSame, toList, toMap } from "postern/json";
import { cue, discovery, list, type ServedResource } from "postern/needs";
import { completePolicy, findPolicyRefusal } from "postern/policy/admission";
import { findPolicyWarnings } from "postern/policy/checks/warnings";
import { type KinitirasPolicy, policyGroup } from "postern/policy/types";
import { describeUnsentRequests } from "postern/policy/webhook-rules";
import type { KubernetesObject } from "postern/review";
import { type RequestMatch, rule } from "postern/rule";

const settings = { scripts: true };

/**
 * Lists webhook configurations without the cache: a policy is often written right after the webhook entries that it
 * needs.
 */
const listConfigurations = (resource: string) =>
  list({ group: "admissionregistration.k8s.io", resource }, { maxAge: 0 });

export default rule({
  summary: "Completes override and validate policies when they are written, and refuses policies that could not work.",
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
    mutating: listConfigurations("mutatingwebhookconfigurations"),
    validating: listConfigurations("validatingwebhookconfigurations"),
    kinds: discovery(),
  },

  mutate(policy: KinitirasPolicy, { oldObject }) {
    completePolicy(policy, oldObject ?? undefined);
  },

  async validate(policy: KinitirasPolicy, { oldObject, settings, cue, mutating, validating, kinds }) {
    if (oldObject && isSame(policy.spec, oldObject.spec)) return;
    const refuse = await findPolicyRefusal(policy, settings.scripts ? cue : undefined);
    if (refuse !== undefined) return refuse;
    const notes = await findUnsentRequests(
      policy,
      kinds,
      policy.kind === "ClusterValidatePolicy" ? validating : mutating,
    );
    return { warnings: [...findPolicyWarnings(policy), ...notes] };
  },
});

/** Warns of requests to which a policy applies and that no webhook entry sends to the rule that applies it. */
const findUnsentRequests = async (
  policy: KinitirasPolicy,
  discover: (groupVersion: string) => Promise<ServedResource[] | undefined>,
  readConfigurations: () => Promise<KubernetesObject[]>,
): Promise<string[]> => {
  const validates = policy.kind === "ClusterValidatePolicy";
  const rule = validates ? "policy-validate" : "policy-override";
  try {
    const rows = listWebhookRules(await readConfigurations(), `${rule}.postern.dev`);
    const operations = ["CREATE", "UPDATE", ...(validates ? ["DELETE" as const] : [])] as const;
    const missing = await describeUnsentRequests(policy, operations, { discover }, rows);
    return missing.map(
      (what) => `no webhook entry sends ${rule} ${what}; renew the entries by npx postern manifests, or deploy`,
    );
  } catch (error) {
    // The check whether webhook entries send the policy's requests failed, but the policy may be valid. The failure
    // is therefore only a warning.
    return [`whether the requests of this policy are sent to ${rule} can't be checked: ${getErrorMessage(error)}`];
  }
};

/** Lists the webhook rules of entries with this name. Skips rules of a wrong shape: cluster users may write any. */
const listWebhookRules = (configurations: KubernetesObject[], name: string): RequestMatch[] =>
  configurations
    .flatMap((one) => toList(toMap(one).webhooks).map(toMap))
    .filter((entry) => entry.name === name)
    .flatMap(({ rules }) => toList(rules))
    .filter((row): row is RequestMatch => {
      const { apiGroups, resources, operations } = toMap(row);
      return [apiGroups, resources, operations].every(Array.isArray);
    });
