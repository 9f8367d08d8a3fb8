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
import { gatesSince } from "./versions.ts";

const defaults: ResourceQuotaSettings = { charges: false, limitedResources: [] };

/** The resources whose updates may use more of a quota, with their subresources. */
const updated = [
  { group: "", resource: "pods", resources: ["pods", "pods/resize"] },
  { group: "", resource: "services", resources: ["services"] },
  {
    group: "",
    resource: "persistentvolumeclaims",
    resources: ["persistentvolumeclaims", "persistentvolumeclaims/status"],
  },
  { group: "resource.k8s.io", resource: "resourceclaims", resources: ["resourceclaims"] },
] as const;
const isScoped = (resource: string) => resource === "pods" || resource === "persistentvolumeclaims";

const namespaced = { apiVersions: ["*"], scope: "Namespaced" } as const;

/** Returns which requests may use a quota or, without charging, what needs one by the settings. */
const listMatches = ({ charges, limitedResources }: ResourceQuotaSettings): RequestMatch[] => {
  const created = charges ? [{ group: "*", resource: "*" }] : listLimited(limitedResources);
  const isCreated = ({ group, resource }: ResourceType) =>
    charges || created.some((one) => one.group === group && one.resource === resource);
  return [
    ...created.map(({ group, resource }): RequestMatch => {
      return { ...namespaced, apiGroups: [group], resources: [resource], operations: ["CREATE"] };
    }),
    ...updated.filter(isCreated).map(({ group, resources }): RequestMatch => {
      return { ...namespaced, apiGroups: [group], resources, operations: ["UPDATE"] };
    }),
  ];
};

/** Returns the limited resources, each once. A scope limits all resources that know scopes, as upstream has it. */
const listLimited = (limitedResources: readonly LimitedResource[]): ResourceType[] => {
  const named = limitedResources.map(({ apiGroup = "", resource }) => ({ group: apiGroup, resource }));
  const hasScopes = limitedResources.some(({ matchScopes = [] }) => matchScopes.length > 0);
  const all = [...named, ...(hasScopes ? updated.filter(({ resource }) => isScoped(resource)) : [])];
  return [...new Map(all.map(({ group, resource }) => [`${group}/${resource}`, { group, resource }])).values()];
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
  // Upstream waits this long, too. Concurrent requests of a namespace wait for each other.
  timeoutSeconds: 10,
  settings: defaults,
  choices: {
    "limitedResources.matchScopes.scopeName": scopeNames,
    "limitedResources.matchScopes.operator": scopeOperators,
  },
  checkSettings: findSettingsFault,
  since: gatesSince,
  needs: {
    // What is charged must not be read from the cache, and charging must not happen twice because of it.
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
    const asked = { request, object, oldObject, evaluator, labelUnit: upstream.labelUnit };
    const decision = await decideOnRequest(quotas, asked, limitedResources, charges);
    if ("refuse" in decision) return { refuse: decision.refuse };
    if (request.dryRun) return;

    const readAgain = () => reads.current(request.namespace);
    const refuse = await writeCharges(decision.charged, reads.update, readAgain, (changed) =>
      // Limited resources were covered before.
      decideOnRequest(changed, asked, [], true),
    );
    if (refuse) return { refuse };
  },
});
