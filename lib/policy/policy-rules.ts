import { warm } from "../cue/engine.ts";
import type { Count } from "../metrics.ts";
import { counter, cue, http, type Reader, type Resource, reader } from "../needs.ts";
import { splitApiVersion } from "../objects/api-version.ts";
import type { LabelSelector } from "../objects/selection.ts";
import type { KubernetesObject, Request } from "../review.ts";
import type { Match, Verdict } from "../rule.ts";
import { blamedIn } from "./blame.ts";
import { nameOf, type Policy, policyGroup, type Reach, type Subject } from "./kinds.ts";
import { type HttpSettings, httpPlaces, httpReach, httpSettings } from "./references/http.ts";
import { hasScript, kindsReferred } from "./references/referred.ts";
import type { Validation } from "./validate.ts";

/** Requests that are sent though no policy that is known beforehand names them. */
export interface Interception extends Omit<Match, "operations"> {
  /** All that policies can concern, if not said. */
  operations?: Match["operations"];
}

/** What the rules that apply policies are set up with. */
export interface PolicySettings {
  /** In postern.yaml also files, or folders of them. */
  policies: readonly Policy[];
  /** Whether those in the cluster hold, too. */
  inCluster: boolean;
  intercept: readonly Interception[];
  objectSelector: LabelSelector;
  /** What references may read beside what policies name; Secrets only if they are among it. */
  reads: readonly Resource[];
  /** Whether policies may hold scripts. */
  scripts: boolean;
  /** Whether CloudWatch counts by policy. */
  metrics: boolean;
  http: HttpSettings;
}

export const policySettings: PolicySettings = {
  policies: [],
  inCluster: true,
  intercept: [],
  objectSelector: {},
  reads: [],
  scripts: true,
  metrics: false,
  http: httpSettings,
};

const kept = (resource: string): Resource => ({ group: policyGroup, version: "v1alpha1", resource });

/** Where a cluster keeps what changes objects, and what refuses requests. */
export const overridePolicies = [kept("clusteroverridepolicies"), kept("overridepolicies")];
export const validatePolicies = [kept("clustervalidatepolicies")];

/** What a rule needs that applies policies which a cluster keeps there. */
export const policyNeeds = (places: readonly Resource[]) => ({
  reader: reader(({ inCluster, policies, reads }: PolicySettings) => [
    ...(inCluster ? places : []),
    ...kindsReferred(policies),
    ...reads,
  ]),
  cue: cue(
    ({ scripts, inCluster, policies }: PolicySettings) => scripts && (inCluster || policies.some(hasScript)),
    ({ scripts, policies }) => scripts && policies.some(hasScript),
  ),
  http: http(({ http }: PolicySettings) => httpPlaces(http)),
  count: counter(),
});

/** Of a rule's surroundings, what evaluating policies needs. */
interface Around {
  request: Request;
  oldObject: KubernetesObject | null;
  settings: PolicySettings;
  reader: Reader;
  cue: Reach["cue"];
  http: Parameters<typeof httpReach>[1];
  count(counts: readonly Count[]): void;
}

/** Whether policies have a say: of policies themselves nobody but admission has, for one could lock out what mends it. */
export const isJudged = ({ operation, kind }: Request): boolean =>
  operation !== "CONNECT" && kind.group !== policyGroup;

/** A request as policies see it. */
export const subjectOf = (object: KubernetesObject, { request, oldObject }: Around): Subject => {
  const { operation, namespace, dryRun } = request;
  return {
    ...{ operation, object },
    ...(operation === "UPDATE" && oldObject && { oldObject }),
    ...(namespace !== undefined && { namespace }),
    ...(dryRun && { dryRun }),
  };
};

/** All policies: those of the settings, and those that the cluster keeps. One of the settings stands for its namesake there. */
export const policiesOf = async (
  places: readonly Resource[],
  { settings: { policies, inCluster, scripts }, reader }: Pick<Around, "settings" | "reader">,
): Promise<readonly Policy[]> => {
  if (!inCluster) return policies;
  const lists = await Promise.all(places.map((place) => listed(place, reader)));
  const [first = none] = lists;
  const known = joined.get(first);
  if (known?.policies === policies && isSameLists(known.lists, lists)) return known.all;
  const own = new Set(policies.map(identity));
  // Of that kind, whatever is in it: the cluster lists nothing else there.
  const others = lists.flat().filter((one) => !own.has(identity(one))) as unknown as Policy[];
  const all = others.length > 0 ? [...policies, ...others] : policies;
  joined.set(first, { policies, lists, all });
  // The first object that one of them is for should not have to wait for all of CUE.
  if (scripts && all.some(hasScript)) warm();
  return all;
};

/**
 * By a cluster's first list, which no other cluster has: as long as the lists are the same, so is what they come to, for
 * a book is made of it once.
 */
const joined = new WeakMap<
  readonly KubernetesObject[],
  { policies: readonly Policy[]; lists: readonly (readonly KubernetesObject[])[]; all: readonly Policy[] }
>();

const isSameLists = (known: readonly unknown[], lists: readonly unknown[]): boolean =>
  known.length === lists.length && known.every((list, index) => list === lists[index]);

const identity = ({ kind, metadata }: KubernetesObject): string =>
  JSON.stringify([kind, metadata?.namespace ?? "", metadata?.name]);

const listed = async (place: Resource, { list, discover }: Reader): Promise<readonly KubernetesObject[]> => {
  try {
    return await list(place);
  } catch (error) {
    // Where nobody has made the kinds, nobody has made any policy.
    if ((await discover(`${policyGroup}/${place.version}`)) === undefined) return none;
    throw error;
  }
};
const none: readonly KubernetesObject[] = [];

/** The ways out of an evaluation. */
export const reachOf = ({ settings, reader, cue, http }: Around): Reach => {
  const servedAs = async (apiVersion: string, kind: string) => {
    const served = await reader.discover(apiVersion);
    const found = served?.find((one) => one.kind === kind && !one.resource.includes("/"));
    if (found === undefined) throw new Error(`the cluster serves no ${kind} of ${apiVersion}`);
    return found;
  };
  const placeOf = async (apiVersion: string, kind: string) => {
    const { resource, namespaced } = await servedAs(apiVersion, kind);
    const { group, version } = splitApiVersion(apiVersion);
    const isSecret = group === "" && resource === "secrets";
    if (isSecret && !settings.reads.some((one) => one.group === group && one.resource === resource))
      throw new Error("Secrets are read only where the setting reads names them");
    return { place: { group, version, resource }, namespaced };
  };
  return {
    serves: servedAs,
    get: async (apiVersion, kind, name, namespace) => {
      const { place, namespaced } = await placeOf(apiVersion, kind);
      if (!namespaced) return reader.get(place, name);
      if (namespace === undefined) throw new Error(`a ${kind} is in a namespace, which the reference must name`);
      return reader.get(place, name, namespace);
    },
    first: async (apiVersion, kind, labels, namespace) => {
      const { place, namespaced } = await placeOf(apiVersion, kind);
      const [found] = await reader.list(place, namespaced ? namespace : undefined, { most: 1, labels });
      return found;
    },
    ...httpReach(settings.http, http),
    cue: async (source) => {
      if (!settings.scripts) throw new Error("scripts are turned off by the setting scripts");
      return cue(source);
    },
  };
};

/** What is said where a policy refuses a request: its reason as it is, and where that is none, whose it was. */
export const refusalBy = (denied: Validation["denied"]): Verdict => {
  if (denied === undefined || denied.reason !== "") return denied?.reason;
  return { refuse: "", warnings: [`ClusterValidatePolicy ${nameOf(denied.policy)} refuses it, and says no reason`] };
};

/** A metric of one policy, under upstream's name for it. */
export interface Happening {
  metric: string;
  /** As upstream names it, a namespace before it. */
  policy: string;
}

/** Has happenings counted, where that is wanted. */
export const tell = ({ settings, request, count }: Around, happenings: readonly Happening[]): void => {
  if (!settings.metrics || happenings.length === 0) return;
  const { group, version, kind } = request.kind;
  const resource_type = `${group}/${version}/${kind}`;
  count(
    happenings.map(({ metric, policy }) => ({
      metric: `kcloudlabs_${metric}`,
      labels: { name: policy, resource_type },
    })),
  );
};

/** The same of an evaluation that fails, by the policy that it blames. */
export const telling = async <T>(around: Around, evaluate: () => Promise<T>): Promise<T> => {
  try {
    return await evaluate();
  } catch (error) {
    const policy = blamedIn(error);
    if (policy) tell(around, [{ metric: "policy_error_count", policy: nameOf(policy) }]);
    throw error;
  }
};
