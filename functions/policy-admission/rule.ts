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

/** Lists webhook configurations without the cache: users often write a policy right after they renewed its entries. */
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
  guards: true, // a security rule: hardening makes it fail closed
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
    // Without a fitting webhook entry, the API server doesn't send the policy's requests to Postern.
    const notes = await warnOfUnsentRequests(
      policy,
      kinds,
      policy.kind === "ClusterValidatePolicy" ? validating : mutating,
    );
    return { warnings: [...findPolicyWarnings(policy), ...notes] };
  },
});

/** Returns a warning for requests that a policy selects, but for which no webhook entry calls the policy's rule. */
const warnOfUnsentRequests = async (
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
    // The policy may be valid although the webhook entries couldn't be read, so this failure is only a warning.
    return [`whether the requests of this policy are sent to ${rule} can't be checked: ${getErrorMessage(error)}`];
  }
};

/** Lists the `rules` of webhook entries with this name. Skips rules of a wrong shape, which users may have written. */
const listWebhookRules = (configurations: KubernetesObject[], name: string): RequestMatch[] =>
  configurations
    .flatMap((configuration) => toList(toMap(configuration).webhooks).map(toMap))
    .filter((entry) => entry.name === name)
    .flatMap(({ rules }) => toList(rules))
    .filter((row): row is RequestMatch => {
      const { apiGroups, resources, operations } = toMap(row);
      return [apiGroups, resources, operations].every(Array.isArray);
    });
