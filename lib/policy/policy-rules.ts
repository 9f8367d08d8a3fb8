import { warmUpCueEngine } from "../cue/engine.ts";
import type { MetricCount } from "../metrics.ts";
import { counter, cue, http, type ObjectReader, type ResourceType, reader } from "../needs.ts";
import { splitApiVersion } from "../objects/api-version.ts";
import type { LabelSelector } from "../objects/selection.ts";
import type { AdmissionRequest, KubernetesObject } from "../review.ts";
import type { RequestMatch, Verdict } from "../rule.ts";
import { findFailedPolicy } from "./policy-failures.ts";
import {
  createPolicyHttpCapabilities,
  defaultHttpSettings,
  listSecretPlaces,
  type PolicyHttpSettings,
} from "./references/http.ts";
import { guessReferencedResources, hasScript } from "./references/referenced-kinds.ts";
import {
  getPolicyName,
  type KinitirasPolicy,
  type PolicyCapabilities,
  type PolicyRequest,
  policyGroup,
} from "./types.ts";
import type { ValidationResult } from "./validate.ts";

/** Requests that the webhook entries match in any case: policies that are created later may select their objects. */
export interface AlwaysInterceptedRequests extends Omit<RequestMatch, "operations"> {
  /** The operations of the intercepted requests; by default, all operations at which policies can apply. */
  operations?: RequestMatch["operations"];
}

/** The settings of the rules policy-override and policy-validate. */
export interface PolicySettings {
  /** Policies. In postern.yaml, it may also have names of files and folders that contain policies. */
  policies: readonly KinitirasPolicy[];
  /** Whether policies in the cluster apply, too. */
  inCluster: boolean;
  intercept: readonly AlwaysInterceptedRequests[];
  objectSelector: LabelSelector;
  /** Resources that references may read besides those that policies name. Secrets can be read only if they are here. */
  reads: readonly ResourceType[];
  /** Whether policies may contain scripts in CUE. */
  scripts: boolean;
  /** Whether each policy has metrics in CloudWatch. */
  metrics: boolean;
  http: PolicyHttpSettings;
}

/** The default settings of the rules that evaluate policies. */
export const policySettings: PolicySettings = {
  policies: [],
  inCluster: true, // policies in the cluster apply, too
  intercept: [], // no requests besides those that policies select
  objectSelector: {},
  reads: [], // no further resources that references may read
  scripts: true, // policies may contain scripts in CUE
  metrics: false,
  http: defaultHttpSettings,
};

const toResourceType = (resource: string): ResourceType => ({ group: policyGroup, version: "v1alpha1", resource });

export const overridePolicyResources = [toResourceType("clusteroverridepolicies"), toResourceType("overridepolicies")];
/** The resource of kinitiras' ClusterValidatePolicy. */
export const validatePolicyResources = [toResourceType("clustervalidatepolicies")];

/**
 * Returns the needs of a rule that applies kinitiras policies; `policyResources` are the resources that hold policies
 * in a cluster.
 */
export const createPolicyNeeds = (policyResources: readonly ResourceType[]) => ({
  reader: reader(({ inCluster, policies, reads }: PolicySettings) => [
    ...(inCluster ? policyResources : []),
    ...guessReferencedResources(policies),
    ...reads,
  ]),
  // The first function reports whether scripts may run; the second, whether the settings have a script.
  cue: cue(
    ({ scripts, inCluster, policies }: PolicySettings) => scripts && (inCluster || policies.some(hasScript)),
    ({ scripts, policies }) => scripts && policies.some(hasScript),
  ),
  http: http(({ http }: PolicySettings) => listSecretPlaces(http)),
  count: counter(),
});

/** What a rule for policies needs: the request, the settings and its capabilities. */
interface PolicyRuleContext {
  request: AdmissionRequest;
  oldObject: KubernetesObject | null;
  settings: PolicySettings;
  reader: ObjectReader;
  cue: PolicyCapabilities["evaluateCue"];
  http: Parameters<typeof createPolicyHttpCapabilities>[1];
  count(counts: readonly MetricCount[]): void;
}

/** Reports whether policies apply to a request: not to policies, because these could refuse their own correction. */
export const isGovernedByPolicies = ({ operation, kind }: AdmissionRequest): boolean =>
  operation !== "CONNECT" && kind.group !== policyGroup;

/** Converts an admission request to the form in which policies are evaluated. */
export const buildPolicyRequest = (
  object: KubernetesObject,
  { request, oldObject }: PolicyRuleContext,
): PolicyRequest => {
  const { operation, namespace, dryRun } = request;
  return {
    operation,
    object,
    ...(operation === "UPDATE" && oldObject && { oldObject }),
    ...(namespace !== undefined && { namespace }),
    ...(dryRun && { dryRun }),
  };
};

/**
 * Returns the policies of the settings and of the cluster. If a policy in the settings has the kind, namespace and name
 * of a policy in the cluster, it replaces that policy.
 */
export const listPolicies = async (
  resourceTypes: readonly ResourceType[],
  { settings: { policies, inCluster, scripts }, reader }: Pick<PolicyRuleContext, "settings" | "reader">,
): Promise<readonly KinitirasPolicy[]> => {
  if (!inCluster) return policies;
  const lists = await Promise.all(resourceTypes.map((resourceType) => listPoliciesOfKind(resourceType, reader)));
  const [first = noObjects] = lists;
  // Policies that were joined earlier are found by the first list, and used if all lists are still the same.
  const cached = joinedPolicies.get(first);
  if (cached?.ofSettings === policies && hasSameLists(cached.ofCluster, lists)) return cached.joined;
  const configured = new Set(policies.map(formatIdentity));
  // The cast says only that these objects have the kinds of policies: their content has not been checked.
  const clusterPolicies = lists
    .flat()
    .filter((policy) => !configured.has(formatIdentity(policy))) as unknown as KinitirasPolicy[];
  const all = clusterPolicies.length > 0 ? [...policies, ...clusterPolicies] : policies;
  joinedPolicies.set(first, { ofSettings: policies, ofCluster: lists, joined: all });
  // CUE is started early, so that the first script waits less.
  if (scripts && all.some(hasScript)) warmUpCueEngine();
  return all;
};

/**
 * The policies of the settings and of the cluster, joined into one list, so that buildPolicyIndex indexes it once. The
 * key can be only one list: the cluster's list of the first kind of policies. The entry is used as long as the lists
 * of all kinds (`ofCluster`), and the list of the settings, are those from which it was made.
 */
const joinedPolicies = new WeakMap<
  readonly KubernetesObject[],
  {
    ofSettings: readonly KinitirasPolicy[];
    ofCluster: readonly (readonly KubernetesObject[])[];
    joined: readonly KinitirasPolicy[];
  }
>();

const hasSameLists = (cachedLists: readonly unknown[], lists: readonly unknown[]): boolean =>
  cachedLists.length === lists.length && cachedLists.every((list, index) => list === lists[index]);

const formatIdentity = ({ kind, metadata }: KubernetesObject): string =>
  JSON.stringify([kind, metadata?.namespace ?? "", metadata?.name]);

/** Lists the policies of a kind in the cluster. */
const listPoliciesOfKind = async (
  resourceType: ResourceType,
  { list, discover }: ObjectReader,
): Promise<readonly KubernetesObject[]> => {
  try {
    return await list(resourceType);
  } catch (error) {
    // A cluster without kinitiras' CustomResourceDefinitions has no policies.
    if ((await discover(`${policyGroup}/${resourceType.version}`)) === undefined) return noObjects;
    throw error;
  }
};
const noObjects: readonly KubernetesObject[] = [];

/** Builds the functions with which the evaluation of a policy asks the cluster, HTTP services and CUE. */
export const createPolicyCapabilities = ({ settings, reader, cue, http }: PolicyRuleContext): PolicyCapabilities => {
  const findServedResource = async (apiVersion: string, kind: string) => {
    const servedResources = await reader.discover(apiVersion);
    const found = servedResources?.find((candidate) => candidate.kind === kind && !candidate.resource.includes("/"));
    if (found === undefined) throw new Error(`the cluster serves no ${kind} of ${apiVersion}`);
    return found;
  };
  const findReadableResource = async (apiVersion: string, kind: string) => {
    const { resource, namespaced } = await findServedResource(apiVersion, kind);
    const { group, version } = splitApiVersion(apiVersion);
    const isSecret = group === "" && resource === "secrets";
    if (isSecret && !settings.reads.some((read) => read.group === group && read.resource === resource))
      throw new Error("Secrets are read only if the setting reads lists them");
    return { place: { group, version, resource }, namespaced };
  };
  return {
    requireKind: findServedResource,
    get: async (apiVersion, kind, name, namespace) => {
      const { place, namespaced } = await findReadableResource(apiVersion, kind);
      if (!namespaced) return reader.get(place, name);
      if (namespace === undefined) throw new Error(`a ${kind} is in a namespace, which the reference must name`);
      return reader.get(place, name, namespace);
    },
    findFirst: async (apiVersion, kind, labels, namespace) => {
      const { place, namespaced } = await findReadableResource(apiVersion, kind);
      const [found] = await reader.list(place, namespaced ? namespace : undefined, { most: 1, labels });
      return found;
    },
    ...createPolicyHttpCapabilities(settings.http, http),
    evaluateCue: async (source) => {
      if (!settings.scripts) throw new Error("scripts are turned off by the setting scripts");
      return cue(source);
    },
  };
};

/** Returns the verdict for a denial. It has the policy's reason; if the reason is empty, a warning names the policy. */
export const toVerdict = (denied: ValidationResult["denied"]): Verdict => {
  if (denied === undefined || denied.reason !== "") return denied?.reason;
  return {
    refuse: "",
    warnings: [`ClusterValidatePolicy ${getPolicyName(denied.policy)} refuses it without a reason`],
  };
};

/**
 * Adds 1 to each metric, if the setting `metrics` is on. The metrics have the names that they have in kinitiras. Their
 * labels are the policy's name and the resource type.
 */
export const countMetrics = (
  { settings, request, count }: PolicyRuleContext,
  events: readonly { metric: string; policy: KinitirasPolicy }[],
): void => {
  if (!settings.metrics || events.length === 0) return;
  const { group, version, kind } = request.kind;
  const resource_type = `${group}/${version}/${kind}`;
  count(
    events.map(({ metric, policy }) => ({
      metric: `kcloudlabs_${metric}`,
      labels: { name: getPolicyName(policy), resource_type },
    })),
  );
};

/** Calls `evaluate`. If it throws, counts an error in the metrics of the policy that failed, and throws the error. */
export const countErrors = async <T>(context: PolicyRuleContext, evaluate: () => Promise<T>): Promise<T> => {
  try {
    return await evaluate();
  } catch (error) {
    const policy = findFailedPolicy(error);
    if (policy) countMetrics(context, [{ metric: "policy_error_count", policy }]);
    throw error;
  }
};
