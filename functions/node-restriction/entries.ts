import type { Conditions, Match } from "postern/rule";

const core = { apiGroups: [""], apiVersions: ["v1"] };
const writes = { operations: ["CREATE", "UPDATE", "DELETE"] as const };
const certificates = { apiGroups: ["certificates.k8s.io"], apiVersions: ["*"] };

/** What a node is taken for dead without. Only what is unusual is called for, and nothing that heals waits for that. */
export const heartbeats: Match[] = [
  { apiGroups: ["coordination.k8s.io"], apiVersions: ["*"], resources: ["leases"], ...writes },
  { ...core, resources: ["nodes/status", "pods/status"], operations: ["UPDATE"] },
];

/** What a kubelet could rise by, in kube-system above all. Pods that a node runs by itself run without being shown. */
export const pods: Match[] = [
  { ...core, resources: ["pods"], operations: ["CREATE", "UPDATE"] },
  { ...core, resources: ["pods/*", "nodes", "nodes/*"], ...writes },
];

/** What a node needs to bring back what the cluster heals by. */
export const others: Match[] = [
  { ...core, resources: ["pods"], operations: ["DELETE"] },
  { ...core, resources: ["pods/eviction", "persistentvolumeclaims", "persistentvolumeclaims/*"], ...writes },
  { ...core, resources: ["serviceaccounts/token"], operations: ["CREATE"] },
  { apiGroups: ["storage.k8s.io"], apiVersions: ["*"], resources: ["csinodes"], ...writes },
  {
    ...{ apiGroups: ["resource.k8s.io"], apiVersions: ["*"] },
    ...{ resources: ["resourceslices"], operations: ["CREATE", "DELETE"] },
  },
  { ...certificates, resources: ["certificatesigningrequests"], operations: ["CREATE"] },
  { ...certificates, resources: ["podcertificaterequests", "podcertificaterequests/*"], ...writes },
];

export const isKubelet: Conditions = {
  "is-a-kubelet": `request.userInfo.?username.orValue("").startsWith("system:node:") &&
    "system:nodes" in request.userInfo.?groups.orValue([])`,
};

// Of `pods/*`, which is whatever pods will have, only a condition can leave out what other entries are for.

export const isNoEviction: Conditions = {
  "is-no-eviction": `request.?subResource.orValue("") != "eviction"`,
};

export const isNoHeartbeat: Conditions = {
  "is-no-heartbeat": `!(request.operation == "UPDATE" && request.?subResource.orValue("") == "status" &&
    request.resource.resource in ["nodes", "pods"])`,
};

/** Which node a heartbeat is of: by its pod, by its lease's or its own name. */
const node = `(request.resource.resource == "pods"
    ? oldObject.?spec.?nodeName.orValue("")
    : request.operation == "CREATE" ? object.?metadata.?name.orValue("") : request.?name.orValue(""))`;

const keeps = (...fields: string[]) =>
  fields.map((field) => `object.?${field}.orValue(null) == oldObject.?${field}.orValue(null)`).join(" &&\n    ");
const ofNodes = keeps("metadata.?labels", "metadata.?ownerReferences", "spec.?taints", "spec.?configSource");
const ofPods = keeps("metadata.?labels", "status.?resourceClaimStatuses", "status.?extendedResourceClaimStatus");

/** Nearly all heartbeats are of the node itself, and leave alone what isn't a kubelet's: those don't cost a call. */
export const isUnusual: Conditions = {
  "is-unusual": `request.userInfo.username == "system:node:" ||
    request.userInfo.username != "system:node:" + ${node} ||
    (request.resource.resource == "leases" && request.?namespace.orValue("") != "kube-node-lease") ||
    (request.resource.resource == "nodes" && !(${ofNodes})) ||
    (request.resource.resource == "pods" && !(${ofPods}))`,
};
