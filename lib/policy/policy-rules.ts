import { warm } from "../cue/engine.ts";
import type { Count } from "../metrics.ts";
import { counter, cue, http, type ObjectReader, type ResourceType, reader } from "../needs.ts";
import { splitApiVersion } from "../objects/api-version.ts";
import type { LabelSelector } from "../objects/selection.ts";
import type { AdmissionRequest, KubernetesObject } from "../review.ts";
import type { RequestMatch, Verdict } from "../rule.ts";
import { blamedIn } from "./policy-failures.ts";
import { type HttpSettings, httpPlaces, httpReach, httpSettings } from "./references/http.ts";
import { hasScript, kindsReferred } from "./references/referenced-kinds.ts";
import { nameOf, type Policy, policyGroup, type Reach, type Subject } from "./types.ts";
import type { Validation } from "./validate.ts";

/** Requests that are sent even if no known policy selects them. */
export interface Interception extends Omit<RequestMatch, "operations"> {
  /** If left out, all operations that policies can concern. */
  operations?: RequestMatch["operations"];
}

export interface PolicySettings {
  /** In postern.yaml also files, or folders of them. */
  policies: readonly Policy[];
  inCluster: boolean;
  intercept: readonly Interception[];
  objectSelector: LabelSelector;
  /** What references may read besides what policies name; they may read Secrets only if listed here. */
  reads: readonly ResourceType[];
  scripts: boolean;
  /** Whether to count per-policy metrics in CloudWatch. */
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

const kept = (resource: string): ResourceType => ({ group: policyGroup, version: "v1alpha1", resource });

export const overridePolicies = [kept("clusteroverridepolicies"), kept("overridepolicies")];
export const validatePolicies = [kept("clustervalidatepolicies")];

/** Returns the needs of a rule that applies the policies which a cluster keeps in `places`. */
export const policyNeeds = (places: readonly ResourceType[]) => ({
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

interface Around {
  request: AdmissionRequest;
  oldObject: KubernetesObject | null;
  settings: PolicySettings;
  reader: ObjectReader;
  cue: Reach["cue"];
  http: Parameters<typeof httpReach>[1];
  count(counts: readonly Count[]): void;
}

/** Reports whether policies apply to a request. They don't apply to policies: one could refuse its own correction. */
export const isJudged = ({ operation, kind }: AdmissionRequest): boolean =>
  operation !== "CONNECT" && kind.group !== policyGroup;

/** Builds the request as policies see it. */
export const subjectOf = (object: KubernetesObject, { request, oldObject }: Around): Subject => {
  const { operation, namespace, dryRun } = request;
  return {
    ...{ operation, object },
    ...(operation === "UPDATE" && oldObject && { oldObject }),
    ...(namespace !== undefined && { namespace }),
    ...(dryRun && { dryRun }),
  };
};

/** Returns all policies. One in the settings replaces one in the cluster of the same kind, namespace and name. */
export const policiesOf = async (
  places: readonly ResourceType[],
  { settings: { policies, inCluster, scripts }, reader }: Pick<Around, "settings" | "reader">,
): Promise<readonly Policy[]> => {
  if (!inCluster) return policies;
  const lists = await Promise.all(places.map((place) => listed(place, reader)));
  const [first = none] = lists;
  const known = joined.get(first);
  if (known?.policies === policies && isSameLists(known.lists, lists)) return known.all;
  const own = new Set(policies.map(identity));
  // The cluster lists only policies here, but their content is not checked.
  const others = lists.flat().filter((one) => !own.has(identity(one))) as unknown as Policy[];
  const all = others.length > 0 ? [...policies, ...others] : policies;
  joined.set(first, { policies, lists, all });
  // Starts loading CUE now, so that the first request that needs it waits less.
  if (scripts && all.some(hasScript)) warm();
  return all;
};

/**
 * Keyed by a cluster's first list, which belongs to that cluster only. While the lists are the same, policiesOf returns
 * the same array, so that bookOf indexes it once.
 */
const joined = new WeakMap<
  readonly KubernetesObject[],
  { policies: readonly Policy[]; lists: readonly (readonly KubernetesObject[])[]; all: readonly Policy[] }
>();

const isSameLists = (known: readonly unknown[], lists: readonly unknown[]): boolean =>
  known.length === lists.length && known.every((list, index) => list === lists[index]);

const identity = ({ kind, metadata }: KubernetesObject): string =>
  JSON.stringify([kind, metadata?.namespace ?? "", metadata?.name]);

const listed = async (place: ResourceType, { list, discover }: ObjectReader): Promise<readonly KubernetesObject[]> => {
  try {
    return await list(place);
  } catch (error) {
    // A cluster without the CRDs has no policies.
    if ((await discover(`${policyGroup}/${place.version}`)) === undefined) return none;
    throw error;
  }
};
const none: readonly KubernetesObject[] = [];

/** Builds the functions through which an evaluation asks the cluster, HTTP services and CUE. */
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

/** Returns the verdict for a denial: the policy's reason or, if that is empty, a warning that names the policy. */
export const refusalBy = (denied: Validation["denied"]): Verdict => {
  if (denied === undefined || denied.reason !== "") return denied?.reason;
  return { refuse: "", warnings: [`ClusterValidatePolicy ${nameOf(denied.policy)} refuses it, and says no reason`] };
};

/** Counts each metric, by upstream's name for it, once for its policy if the setting `metrics` is on. */
export const tell = (
  { settings, request, count }: Around,
  happenings: readonly { metric: string; policy: Policy }[],
): void => {
  if (!settings.metrics || happenings.length === 0) return;
  const { group, version, kind } = request.kind;
  const resource_type = `${group}/${version}/${kind}`;
  count(
    happenings.map(({ metric, policy }) => ({
      metric: `kcloudlabs_${metric}`,
      labels: { name: nameOf(policy), resource_type },
    })),
  );
};

/** Runs an evaluation; if it throws, counts an error of the policy that the error names. */
export const telling = async <T>(around: Around, evaluate: () => Promise<T>): Promise<T> => {
  try {
    return await evaluate();
  } catch (error) {
    const policy = blamedIn(error);
    if (policy) tell(around, [{ metric: "policy_error_count", policy }]);
    throw error;
  }
};
