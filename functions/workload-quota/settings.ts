import { isMap, isTextOrNumber } from "postern/json";
import { parseQuantity } from "postern/objects/quantity";
import { type CountedKind, countedKinds } from "./kinds.ts";
import { getCountName, isQuotaName } from "./measure.ts";

/** A quota in the settings. Without lists of clusters, namespaces or users, it counts all of them. */
export interface Quota {
  name: string;
  clusters?: string[];
  namespaces?: string[];
  namespaceLabels?: Record<string, string>;
  users?: string[];
  groups?: string[];
  /** The limits by name, such as `requests.cpu`. In YAML, a whole amount may be a number. */
  hard: Record<string, string | number>;
  /** A percentage of `hard`, such as 80%. If a quota is fuller, admitted requests get a warning. */
  warnAt?: string;
  /**
   * The share of `hard`, such as 30%, that one cluster may reserve for objects whose writes were admitted, but that the
   * rule hasn't found in the cluster yet. The default is 50%, or 100% if the quota lists a single cluster.
   */
  unseen?: string;
}

/**
 * Returns the percentage of the limit (`hard`) that objects of one cluster may reserve before the rule has read them
 * there (`unseen`). Returns undefined for 100 percent, because the check of `hard` is enough then. The default is 50,
 * so that one cluster alone can't fill the quota, or 100 for a quota of a single cluster.
 */
export const getUnseenPercent = ({ clusters, unseen }: Quota): bigint | undefined => {
  const percent = BigInt(unseen?.slice(0, -1) ?? (clusters?.length === 1 ? 100 : 50));
  return percent < 100n ? percent : undefined;
};

/** A kind that the settings add to the counted kinds. `template` and `replicas` are paths, such as `spec.template`. */
interface AddedKind {
  group: string;
  resource: string;
  kind: string;
  template: string;
  replicas?: string;
}

export interface WorkloadQuotaSettings {
  quotas: Quota[];
  /** Kinds to count besides the built-in ones, such as Deployment, or in place of the one with the same resource. */
  kinds: AddedKind[];
  /** The users whose objects, such as the Pods of a Deployment, are counted with the workload that controls them. */
  controllers: { users: string[]; groups: string[] };
}

/** Returns all counted kinds: the kinds of the settings, and the built-in kinds that the settings don't replace. */
export const listCountedKinds = ({ kinds }: WorkloadQuotaSettings): CountedKind[] => {
  const added = kinds.map(({ group, resource, kind, template, replicas }): CountedKind => {
    // With `*`, each element of a list has its own number of replicas, and the scale subresource can't set them.
    const isScalable = replicas !== undefined && !replicas.includes("*");
    const pods = [{ template, factors: replicas === undefined ? [] : [replicas] }];
    return { group, resource, kind, pods, ...(isScalable && { scale: replicas }) };
  });
  const isReplaced = (builtIn: CountedKind) =>
    added.some(({ group, resource }) => group === builtIn.group && resource === builtIn.resource);
  return [...countedKinds.filter((builtIn) => !isReplaced(builtIn)), ...added];
};

const quotaMembers = "name clusters namespaces namespaceLabels users groups hard warnAt unseen".split(" ");
const kindMembers = ["group", "resource", "kind", "template", "replicas"];

const quotaName = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;
/** Matches paths such as `spec.workers.*.template`. */
const path = /^([A-Za-z0-9_-]+|\*)(\.([A-Za-z0-9_-]+|\*))*$/;
/** Matches `1%` to `100%`. */
const share = /^([1-9][0-9]?|100)%$/;
/** The most quotas. A ledger change may have 100 values: 2 a quota, 10 to correct lapsed reservations, 10 spare. */
export const mostQuotas = 40;

/** Returns the end of an error message, such as `, not 3`; an empty text if there is no value. */
const describeFound = (value: unknown) => (value === undefined ? "" : `, not ${JSON.stringify(value)}`);

/** Returns what is wrong with the settings, in a sentence. */
export const findSettingsFault = (
  settings: WorkloadQuotaSettings,
  knownClusters?: readonly string[],
): string | undefined => {
  const { quotas, kinds } = settings;
  if (quotas.length === 0) return "must have at least one quota";
  if (quotas.length > mostQuotas) return `must have at most ${mostQuotas} quotas, not ${quotas.length}`;
  const names = new Set<unknown>();
  for (const [index, quota] of quotas.entries()) {
    const fault = findQuotaFault(quota, `quotas[${index}]`);
    if (fault) return fault;
    if (names.has(quota.name)) return `must have one quota ${quota.name}, not two`;
    names.add(quota.name);
  }
  const resources = new Set<string>();
  for (const [index, kind] of kinds.entries()) {
    const fault = findKindFault(kind, `kinds[${index}]`);
    if (fault) return fault;
    const name = `${kind.resource}.${kind.group}`;
    if (resources.has(name)) return `must have one kind for ${name}, not two`;
    resources.add(name);
  }
  const counts = new Set(listCountedKinds(settings).map(getCountName));
  for (const [index, { hard, clusters = [] }] of quotas.entries()) {
    const uncounted = Object.keys(hard).find((name) => name.startsWith("count/") && !counts.has(name));
    if (uncounted !== undefined)
      return `must have the resource of a counted kind, such as count/deployments.apps, in quotas[${index}].hard, not ${uncounted}`;
    const unknown = knownClusters && clusters.find((name) => !knownClusters.includes(name));
    if (unknown !== undefined)
      return `must name clusters of postern.yaml in quotas[${index}].clusters, not "${unknown}"`;
  }
};

/** Returns what is wrong with a quota in the settings, whose path is `at`; undefined if nothing is wrong. */
const findQuotaFault = (quota: unknown, at: string): string | undefined => {
  if (!isMap(quota)) return `must have a map as ${at}${describeFound(quota)}`;
  const unknown = Object.keys(quota).find((key) => !quotaMembers.includes(key));
  if (unknown !== undefined) return `must have only ${quotaMembers.join(", ")} in ${at}, not ${unknown}`;
  const { name, namespaceLabels = {}, hard } = quota;
  if (typeof name !== "string" || !quotaName.test(name))
    return `must have small letters, digits and hyphens as name in ${at}${describeFound(name)}`;
  for (const member of ["clusters", "namespaces", "users", "groups"]) {
    const list = quota[member] ?? ["any"];
    if (!Array.isArray(list) || list.length === 0 || list.some((text) => typeof text !== "string" || text === ""))
      return `must have a list of texts as ${member} in ${at}, or leave it out${describeFound(list)}`;
  }
  if (!isMap(namespaceLabels) || Object.values(namespaceLabels).some((text) => typeof text !== "string"))
    return `must have a map of texts as namespaceLabels in ${at}${describeFound(namespaceLabels)}`;
  if (!isMap(hard) || Object.keys(hard).length === 0) return `must have at least one name in ${at}.hard`;
  for (const [resource, amount] of Object.entries(hard)) {
    if (!isQuotaName(resource))
      return `must have names such as requests.cpu, requests.nvidia.com/gpu, pods or count/deployments.apps in ${at}.hard, not ${resource}`;
    const parsed = isTextOrNumber(amount) ? parseQuantity(amount) : undefined;
    if (!parsed || parsed.nanos < 0n)
      return `must have a quantity from 0 such as 200 or 1Gi as ${at}.hard.${resource}, not ${JSON.stringify(amount)}`;
  }
  for (const member of ["warnAt", "unseen"]) {
    const text = quota[member] ?? "100%";
    if (typeof text !== "string" || !share.test(text))
      return `must have a share from 1% to 100% as ${member} in ${at}, not ${JSON.stringify(text)}`;
  }
};

/** Returns what is wrong with a kind in the settings, whose path is `at`; undefined if nothing is wrong. */
const findKindFault = (kind: unknown, at: string): string | undefined => {
  if (!isMap(kind)) return `must have a map as ${at}${describeFound(kind)}`;
  const unknown = Object.keys(kind).find((key) => !kindMembers.includes(key));
  if (unknown !== undefined) return `must have only ${kindMembers.join(", ")} in ${at}, not ${unknown}`;
  const { group, resource, kind: name, template, replicas } = kind;
  const examples: Record<string, string> = { group: "example.com", resource: "trainers", kind: "Trainer" };
  for (const [member, text] of Object.entries({ group, resource, kind: name }))
    if (typeof text !== "string" || !/^[A-Za-z0-9][A-Za-z0-9.-]*$/.test(text))
      return `must have a ${member} such as ${examples[member]} in ${at}${describeFound(text)}`;
  for (const [member, text] of Object.entries({ template, replicas })) {
    if (member === "replicas" && text === undefined) continue;
    if (typeof text !== "string" || !path.test(text))
      return `must have a path such as spec.${member} or spec.workers.*.${member} as ${member} in ${at}${describeFound(text)}`;
  }
};
