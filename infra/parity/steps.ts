import type { Call } from "./control-plane/client.ts";
import type { Fields } from "./requests.ts";

/** Requests one after another, the same to every server. Each is judged, and what it leaves is compared. */
export interface Scenario {
  name: string;
  /** Asked while no plugin is on and no rule is called: what was there before. */
  before?: Call[];
  calls: Call[];
}

// Of what scenarios are made.

export const pods = "/api/v1/namespaces/default/pods";
export const services = "/api/v1/namespaces/default/services";
export const claims = "/api/v1/namespaces/default/persistentvolumeclaims";
export const nodes = "/api/v1/nodes";
export const image = "registry.example.com/app:1";
export const lost = "node.kubernetes.io/unreachable";
export const pod = (name: string, spec: Fields = {}, metadata: Fields = {}) => {
  const containers = [{ name: "a", image }];
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { ...(name && { name }), ...metadata },
    spec: { containers, ...spec },
  };
};
export const service = (name: string, externalIPs?: string[]) => {
  const spec = { ports: [{ port: 80 }], ...(externalIPs && { externalIPs }) };
  return { apiVersion: "v1", kind: "Service", metadata: { name }, spec };
};
export const claim = (name: string, finalizers?: string[]) => {
  const spec = { accessModes: ["ReadWriteOnce"], resources: { requests: { storage: "1Gi" } } };
  const metadata = { name, ...(finalizers && { finalizers }) };
  return { apiVersion: "v1", kind: "PersistentVolumeClaim", metadata, spec };
};
export const node = (name: string, taints?: Fields[]) => {
  return { apiVersion: "v1", kind: "Node", metadata: { name }, spec: { ...(taints && { taints }) } };
};
export const protection = "scheduling.k8s.io/podgroup-protection";
export const create = (path: string, body: unknown): Call => ({ method: "POST", path, body });
export const patch = (path: string, body: unknown, type = "strategic-merge-patch+json"): Call => {
  return { method: "PATCH", path, body, contentType: `application/${type}` };
};
export const label = (path: string) => patch(path, { metadata: { labels: { touched: "yes" } } });
export const remove = (path: string): Call => ({ method: "DELETE", path: `${path}?gracePeriodSeconds=0` });
export const api = (group: string, resource: string) => `/apis/${group}/${resource}`;
export const within = (namespace: string, resource = "pods") => `/api/v1/namespaces/${namespace}/${resource}`;
export const see = (path: string): Call => ({ method: "GET", path });
export const as = (username: string, call: Call): Call => ({ ...call, impersonate: { username, groups: [] } });
/** A namespace of its own, with the account that its pods are given. */
export const home = (name: string, annotations: Fields = {}): Call[] => [
  create("/api/v1/namespaces", { metadata: { name, annotations } }),
  create(within(name, "serviceaccounts"), { metadata: { name: "default" } }),
];
export const annotate = (path: string, annotations: Fields) =>
  patch(path, { metadata: { annotations } }, "merge-patch+json");
export const sized = (name: string, storage: string, storageClassName = "", annotations: Fields = {}) => {
  const { spec, ...rest } = claim(name);
  return {
    ...rest,
    metadata: { name, annotations },
    spec: { ...spec, storageClassName, resources: { requests: { storage } } },
  };
};
/** A node, and what its kubelet says of it. */
export const kubelet = (name: string, labels: Fields, status: Fields): Call[] => [
  create(nodes, { metadata: { name, labels }, spec: {} }),
  patch(`${nodes}/${name}/status`, { status }, "merge-patch+json"),
];
export const resize = (name: string, spec: Fields) => patch(`${pods}/${name}/resize`, { spec });
/** What somebody may do, where all others may do nothing. */
export const role = (name: string, user: string, rules: Fields[]): Call[] => [
  create(api(rbac, "v1/clusterroles"), { metadata: { name }, rules }),
  create(api(rbac, "v1/clusterrolebindings"), {
    metadata: { name },
    roleRef: { apiGroup: rbac, kind: "ClusterRole", name },
    subjects: [{ apiGroup: rbac, kind: "User", name: user }],
  }),
];
export const rbac = "rbac.authorization.k8s.io";
export const tolerations = (key: "defaultTolerations" | "tolerationsWhitelist", list: Fields[]) => {
  return { [`scheduler.alpha.kubernetes.io/${key}`]: JSON.stringify(list) };
};
export const requests = (resources: Fields) => ({ resources: { requests: resources } });
export const limits = (resources: Fields) => ({ resources: { limits: resources } });
export const tolerating = (toleration: Fields): [string, Fields] => [
  `a pod tolerating ${JSON.stringify(toleration)}`,
  { tolerations: [toleration] },
];
