import type { DeviceClass, ResourceClaim } from "postern/kubernetes/resource/v1";
import { get, list, onlyIf, type ResourceType, updateStatus } from "postern/needs";
import type { KubernetesObject } from "postern/review";
import { type RequestMatch, rule } from "postern/rule";
import { writeCharges } from "./charging.ts";
import { decideOnRequest } from "./decision.ts";
import { chooseEvaluator, mayChangeUsage } from "./evaluators.ts";
import {
  findSettingsFault,
  type LimitedResource,
  type ResourceQuotaSettings,
  scopeNames,
  scopeOperators,
} from "./settings.ts";
import { gatesByKubernetesVersion } from "./versions.ts";

const defaults: ResourceQuotaSettings = { charges: false, limitedResources: [] };

/** The resources whose updates can increase what they use of a quota. `resources` are the resource and subresources. */
const resourcesCountedOnUpdate = [
  { group: "", resource: "pods", resources: ["pods", "pods/resize"] },
  { group: "", resource: "services", resources: ["services"] },
  {
    group: "",
    resource: "persistentvolumeclaims",
    resources: ["persistentvolumeclaims", "persistentvolumeclaims/status"],
  },
  { group: "resource.k8s.io", resource: "resourceclaims", resources: ["resourceclaims"] },
] as const;
const resourcesWithScopes = ["pods", "persistentvolumeclaims"].map((resource) => ({ group: "", resource }));

const namespaced = { apiVersions: ["*"], scope: "Namespaced" } as const;

/**
 * Returns the requests that may use more of a quota. With `charges: false`, the rule doesn't count what quotas use, but
 * only requires a quota for limited resources: then it returns the requests for these.
 */
const listMatches = ({ charges, limitedResources }: ResourceQuotaSettings): RequestMatch[] => {
  const countedTypes = charges ? [{ group: "*", resource: "*" }] : listLimited(limitedResources);
  const isCountedType = ({ group, resource }: ResourceType) =>
    charges || countedTypes.some((type) => type.group === group && type.resource === resource);
  return [
    ...countedTypes.map(({ group, resource }): RequestMatch => {
      return { ...namespaced, apiGroups: [group], resources: [resource], operations: ["CREATE"] };
    }),
    ...resourcesCountedOnUpdate.filter(isCountedType).map(({ group, resources }): RequestMatch => {
      return { ...namespaced, apiGroups: [group], resources, operations: ["UPDATE"] };
    }),
  ];
};

/** Returns the limited resources, each once. As in upstream, any `matchScopes` limits all resources with scopes. */
const listLimited = (limitedResources: readonly LimitedResource[]): ResourceType[] => {
  const named = limitedResources.map(({ apiGroup = "", resource }) => ({ group: apiGroup, resource }));
  const hasScopes = limitedResources.some(({ matchScopes = [] }) => matchScopes.length > 0);
  const limited = [...named, ...(hasScopes ? resourcesWithScopes : [])];
  return [...new Map(limited.map(({ group, resource }) => [`${group}/${resource}`, { group, resource }])).values()];
};

const devices = (resource: string): ResourceType => ({ group: "resource.k8s.io", resource });
const countsDevices = ({ charges, limitedResources }: ResourceQuotaSettings) =>
  charges || limitedResources.some(({ resource }) => resource === "resourceclaims");

const terminates = (pod: "object" | "oldObject") => `${pod}.?spec.?activeDeadlineSeconds.hasValue()`;

export default rule({
  summary:
    "Enforces ResourceQuotas if the API server doesn't, and allows limited resources only in namespaces with a quota.",
  order: 40,
  upstreamPlugin: {
    plugin: "ResourceQuota",
    worthwhile:
      "By default, the API server's plugin ResourceQuota enforces quotas. But in a managed cluster, you can't configure its limitedResources; this rule enforces them.",
    settings: { charges: true },
  },
  match: listMatches,
  matchConditions: {
    "is-counted": `!(request.resource.group + "/" + request.resource.resource in
      ["/bindings", "/events", "events.k8s.io/events", "authorization.k8s.io/localsubjectaccessreviews"])`,
    "may-use-more": `request.operation != "UPDATE" || request.resource.resource != "pods" ||
      request.?subResource.orValue("") != "" || ${terminates("object")} != ${terminates("oldObject")}`,
  },
  sideEffects: "NoneOnDryRun",
  // Upstream has the same timeout. It is long, because concurrent requests in a namespace wait for each other.
  timeoutSeconds: 10,
  settings: defaults,
  choices: {
    "limitedResources.matchScopes.scopeName": scopeNames,
    "limitedResources.matchScopes.operator": scopeOperators,
  },
  checkSettings: findSettingsFault,
  since: gatesByKubernetesVersion, // the values of `upstream` since each minor version of Kubernetes
  needs: {
    // Quotas to charge are read without the cache: an update of an outdated quota would be refused.
    current: list("resourcequotas", { maxAge: 0 }),
    recent: list("resourcequotas"),
    update: onlyIf(({ charges }: ResourceQuotaSettings) => charges, updateStatus("resourcequotas")),
    classes: onlyIf(countsDevices, list<DeviceClass>(devices("deviceclasses"), { maxAge: 0 })),
    claims: onlyIf(countsDevices, list<ResourceClaim>(devices("resourceclaims"), { maxAge: 0 })),
    pod: onlyIf(countsDevices, get("pods", { maxAge: 0 })),
  },

  async validate(object: KubernetesObject, { request, oldObject, settings, upstream, now, ...reads }) {
    const { charges, limitedResources } = settings;
    if (!mayChangeUsage(request, upstream)) return;
    const quotas = await (charges ? reads.current : reads.recent)(request.namespace);
    if (quotas.length === 0 && limitedResources.length === 0) return;

    const evaluator = await chooseEvaluator(request, now, upstream, reads);
    const quotaRequest = { request, object, oldObject, evaluator, labelLengthUnit: upstream.labelUnit };
    const decision = await decideOnRequest(quotas, quotaRequest, limitedResources, charges);
    if ("refuse" in decision) return { refuse: decision.refuse };
    if (request.dryRun) return;

    const readAgain = () => reads.current(request.namespace);
    // Without the setting `charges`, `decision.charged` is empty, so nothing is written.
    const refuse = await writeCharges(decision.charged, reads.update, readAgain, (changed) =>
      // The quotas are enforced again (`true`), but limited resources aren't checked again (the empty list).
      decideOnRequest(changed, quotaRequest, [], true),
    );
    if (refuse) return { refuse };
  },
});
