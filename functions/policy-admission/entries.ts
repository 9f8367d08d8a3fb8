import { getErrorMessage } from "postern/failure";
import type { ServedResource } from "postern/needs";
import { uncovered } from "postern/policy/interception";
import type { Policy } from "postern/policy/kinds";
import type { KubernetesObject } from "postern/review";
import type { RequestMatch } from "postern/rule";

/** Warns of requests that a policy concerns and that no webhook entry sends to the rule that applies it. */
export const unsent = async (
  policy: Policy,
  discover: (groupVersion: string) => Promise<ServedResource[] | undefined>,
  configurations: () => Promise<KubernetesObject[]>,
): Promise<string[]> => {
  const validates = policy.kind === "ClusterValidatePolicy";
  const rule = validates ? "policy-validate" : "policy-override";
  try {
    const rows = rowsIn(await configurations(), `${rule}.postern.dev`);
    const operations = ["CREATE", "UPDATE", ...(validates ? ["DELETE" as const] : [])] as const;
    const missing = await uncovered(policy, operations, { discover }, rows);
    return missing.map((what) => `no entry of ${rule} sends it ${what}: npx postern manifests renews them, or deploy`);
  } catch (error) {
    // The policy is valid even if this can't be checked.
    return [`whether ${rule} is sent what this is about can't be said: ${getErrorMessage(error)}`];
  }
};

/** Returns the rules of webhook entries with this name. Checks their shape: any cluster user may have written them. */
const rowsIn = (configurations: KubernetesObject[], name: string): RequestMatch[] =>
  configurations
    .flatMap((one): unknown => Object(one).webhooks ?? [])
    .filter((entry) => Object(entry).name === name)
    .flatMap((entry) => Object(entry).rules ?? [])
    .filter((row) => [row?.apiGroups, row?.resources, row?.operations].every(Array.isArray));
