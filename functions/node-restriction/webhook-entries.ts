import type { NamedConditions, RequestMatch } from "postern/rule";

const core = { apiGroups: [""], apiVersions: ["v1"] };
const writes = { operations: ["CREATE", "UPDATE", "DELETE"] as const };
const certificates = { apiGroups: ["certificates.k8s.io"], apiVersions: ["*"] };

/** Requests that show that a node is alive. Ordinary ones don't call the rule, so that an outage doesn't delay them. */
export const heartbeatMatches: RequestMatch[] = [
  { apiGroups: ["coordination.k8s.io"], apiVersions: ["*"], resources: ["leases"], ...writes },
  { ...core, resources: ["nodes/status", "pods/status"], operations: ["UPDATE"] },
];

/**
 * Requests about pods and nodes that could give a kubelet more rights. If the webhook is down, they may be refused in
 * all namespaces, also in kube-system: a kubelet runs the static pods of the control plane even if it can't create
 * their mirror pods in the API server.
 */
export const podAndNodeRequests: RequestMatch[] = [
  { ...core, resources: ["pods"], operations: ["CREATE", "UPDATE"] },
  { ...core, resources: ["pods/*", "nodes", "nodes/*"], ...writes },
];

/**
 * The requests of kubelets that aren't in `heartbeatMatches` or `podAndNodeRequests`. A node needs them to restart the
 * components in kube-system, which repair a cluster. So if the webhook is hardened (set to refuse requests while the
 * rule is down), its entry for these requests exempts kube-system.
 */
export const otherKubeletRequests: RequestMatch[] = [
  { ...core, resources: ["pods"], operations: ["DELETE"] },
  { ...core, resources: ["pods/eviction", "persistentvolumeclaims", "persistentvolumeclaims/*"], ...writes },
  { ...core, resources: ["serviceaccounts/token"], operations: ["CREATE"] },
  { apiGroups: ["storage.k8s.io"], apiVersions: ["*"], resources: ["csinodes"], ...writes },
  { apiGroups: ["storage.k8s.io"], apiVersions: ["*"], resources: ["csinodes/status"], operations: ["UPDATE"] },
  {
    apiGroups: ["resource.k8s.io"],
    apiVersions: ["*"],
    resources: ["resourceslices"],
    operations: ["CREATE", "DELETE"],
  },
  { ...certificates, resources: ["certificatesigningrequests"], operations: ["CREATE"] },
  { ...certificates, resources: ["podcertificaterequests", "podcertificaterequests/*"], ...writes },
];

/** True for requests of kubelets. */
export const isKubeletCondition: NamedConditions = {
  "is-a-kubelet": `request.userInfo.?username.orValue("").startsWith("system:node:") &&
    "system:nodes" in request.userInfo.?groups.orValue([])`,
};

// The match `pods/*` contains all subresources, so conditions must exclude requests that other entries handle.

/** A CEL matchCondition that is true for all requests except evictions and deletions of Pods. */
export const noPodRemovalCondition: NamedConditions = {
  "is-no-removal": `!(request.resource.resource == "pods" &&
    (request.operation == "DELETE" ? request.?subResource.orValue("") == "" : request.?subResource.orValue("") == "eviction"))`,
};

/** A CEL matchCondition that is true for all requests except updates of the status of Nodes and Pods. */
export const noStatusHeartbeatCondition: NamedConditions = {
  "is-no-heartbeat": `!(request.operation == "UPDATE" && request.?subResource.orValue("") == "status" &&
    request.resource.resource in ["nodes", "pods"])`,
};

/** CEL for the name of the node that a heartbeat is about: a write of a lease, or of the status of a node or pod. */
const heartbeatNode = `(request.resource.resource == "pods"
    ? oldObject.?spec.?nodeName.orValue("")
    : request.operation == "CREATE" ? object.?metadata.?name.orValue("") : request.?name.orValue(""))`;

/** Returns a CEL expression that is true if the request changes none of these fields. */
const keepsAll = (...fields: string[]) =>
  fields.map((field) => `object.?${field}.orValue(null) == oldObject.?${field}.orValue(null)`).join(" &&\n    ");
const nodeFields = ["metadata.?labels", "metadata.?ownerReferences", "spec.?taints", "spec.?configSource"];
const keepsNodeFields = keepsAll(...nodeFields);
const keepsPodFields = keepsAll(
  "metadata.?labels",
  "status.?resourceClaimStatuses",
  "status.?extendedResourceClaimStatus",
  "status.?nodeAllocatableResourceClaimStatuses",
);

/**
 * Conditions that skip heartbeats about the kubelet's own node which change no protected field: nearly all. A user
 * `system:node:` has no own node, so its heartbeats aren't skipped.
 */
export const skipOrdinaryHeartbeatConditions: NamedConditions = {
  "is-unusual": `request.userInfo.username == "system:node:" ||
    request.userInfo.username != "system:node:" + ${heartbeatNode} ||
    (request.resource.resource == "leases" && request.?namespace.orValue("") != "kube-node-lease") ||
    (request.resource.resource == "nodes" && !(${keepsNodeFields})) ||
    (request.resource.resource == "pods" && !(${keepsPodFields}))`,
};
