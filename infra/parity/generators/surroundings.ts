import type { JsonMap } from "#lib/json.ts";
import { plural } from "#lib/recorded-answers.ts";
import type { Client } from "../control-plane/client.ts";
import { signing } from "./certificates.ts";
import { ofNodes } from "./nodes.ts";
import { securedHomes, securedPods } from "./pod-security.ts";

// What stands around the requests: the same in both clusters, there before any plugin is on and any rule is called.

interface Named {
  apiVersion: string;
  kind: string;
  metadata: JsonMap & { name: string; namespace?: string };
  /** What only the subresource takes. */
  status?: JsonMap;
}

const object = (apiVersion: string, kind: string, name: string, rest: JsonMap = {}, metadata: JsonMap = {}): Named => {
  return { apiVersion, kind, metadata: { name, ...metadata }, ...rest };
};
const annotated = (annotations: JsonMap) => ({ annotations });

const selector = "scheduler.alpha.kubernetes.io/node-selector";
const defaults = "scheduler.alpha.kubernetes.io/defaultTolerations";
const whitelist = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";
const exists = (key: string, effect?: string) => ({ key, operator: "Exists", ...(effect && { effect }) });
const lost = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.kubernetes.io/memory-pressure"];

/** The namespaces of requests' objects beside `default`, each with what a plugin reads there. */
export const homes = {
  limited: {},
  "limited-twice": {},
  accounted: {},
  unaccounted: {},
  grouped: {},
  selecting: annotated({ [selector]: "env=prod, tier = a" }),
  "selecting-nothing": annotated({ [selector]: "" }),
  "selecting-badly": annotated({ [selector]: "env in (a)" }),
  "selecting-keylessly": annotated({ [selector]: "-x=a" }),
  "selecting-within": annotated({ [selector]: "disk=ssd" }),
  "selecting-beyond": {},
  tolerating: annotated({
    [defaults]: JSON.stringify([
      exists("dedicated"),
      { key: "tier", operator: "Equal", value: "a", effect: "NoSchedule" },
    ]),
  }),
  "tolerating-nothing": annotated({ [defaults]: "", [whitelist]: "[]" }),
  "tolerating-little": annotated({
    [whitelist]: JSON.stringify([...lost.map((key) => exists(key)), exists("example.com/gpu", "NoSchedule")]),
  }),
  "tolerating-badly": annotated({ [defaults]: "[nonsense" }),
  "tolerating-otherwise": annotated({ [whitelist]: '{"key": "dedicated"}' }),
  "tolerating-within": annotated({
    [defaults]: JSON.stringify([exists("tier")]),
    [whitelist]: JSON.stringify([exists("a")]),
  }),
  ...securedHomes,
  ending: {},
};
export type Home = "default" | "nowhere" | keyof typeof homes;

const limitRange = (namespace: Home, name: string, ...limits: JsonMap[]) =>
  object("v1", "LimitRange", name, { spec: { limits } }, { namespace });
const limitRanges = [
  limitRange(
    "limited",
    "all",
    {
      type: "Container",
      default: { cpu: "1", memory: "1Gi" },
      defaultRequest: { cpu: "100m" },
      min: { cpu: "50m" },
      max: { cpu: "2", memory: "2Gi", "ephemeral-storage": "2Gi" },
      maxLimitRequestRatio: { cpu: "10" },
    },
    { type: "Pod", max: { cpu: "3", memory: "3Gi" }, min: { memory: "64Mi" }, maxLimitRequestRatio: { memory: "16" } },
    { type: "PersistentVolumeClaim", min: { storage: "1Gi" }, max: { storage: "5Gi" } },
  ),
  // Which of several is first is up to chance; these have nothing to say of the same.
  limitRange("limited-twice", "claims", { type: "PersistentVolumeClaim", max: { storage: "2Gi" } }),
  limitRange("limited-twice", "containers", { type: "Container", defaultRequest: { cpu: "1e-1", memory: "64.5Mi" } }),
];

const account = (namespace: Home, name: string, rest: JsonMap = {}, annotations: JsonMap = {}) =>
  object("v1", "ServiceAccount", name, rest, { namespace, annotations });
const enforced = "kubernetes.io/enforce-mountable-secrets";
const secrets = { secrets: [{ name: "a" }], imagePullSecrets: [{ name: "pull" }] };
const accounts = [
  account("default", "default"),
  account("accounted", "default", { imagePullSecrets: [{ name: "pull" }, { name: "other" }] }),
  account("accounted", "quiet", { automountServiceAccountToken: false }),
  account("accounted", "strict", secrets, { [enforced]: "true" }),
  account("accounted", "lenient", secrets, { [enforced]: "yes" }),
];

const isDefault = (mark: string, value = "true") => annotated({ [`${mark}/is-default-class`]: value });
const storageClass = (name: string, metadata: JsonMap, allowVolumeExpansion?: boolean) =>
  object("storage.k8s.io/v1", "StorageClass", name, { provisioner: "example.com", allowVolumeExpansion }, metadata);
const ingressClass = (name: string, metadata: JsonMap) =>
  object("networking.k8s.io/v1", "IngressClass", name, { spec: { controller: "example.com/a" } }, metadata);
const priorityClass = (name: string, value: number, rest: JsonMap = {}) =>
  object("scheduling.k8s.io/v1", "PriorityClass", name, { value, ...rest });
const classes = [
  storageClass("fast", {}, true),
  storageClass("slow", {}, false),
  storageClass("standard", isDefault("storageclass.kubernetes.io"), true),
  storageClass("standard-older", isDefault("storageclass.beta.kubernetes.io")),
  storageClass("no-standard", isDefault("storageclass.kubernetes.io", "yes")),
  ingressClass("web", isDefault("ingressclass.kubernetes.io")),
  ingressClass("web-too", isDefault("ingressclass.kubernetes.io")),
  ingressClass("inner", isDefault("ingressclass.kubernetes.io", "false")),
  // Only with the plugin off can a second default be created. The lower one counts.
  priorityClass("usual", 100, { globalDefault: true, preemptionPolicy: "Never" }),
  priorityClass("unusual", 200, { globalDefault: true }),
  priorityClass("high", 1000),
  priorityClass("polite", 500, { preemptionPolicy: "Never" }),
];

const runtimeClass = (name: string, tolerations: JsonMap[], rest: JsonMap = {}, nodeSelector?: JsonMap) => {
  const scheduling = { ...(nodeSelector && { nodeSelector }), tolerations };
  return { ...object("node.k8s.io/v1", "RuntimeClass", name, { handler: name, ...rest }), scheduling };
};
export const runtimeClasses = {
  sandboxed: runtimeClass("sandboxed", [exists("example.com/sandboxed", "NoSchedule")]),
  impatient: runtimeClass("impatient", [
    { ...exists("node.kubernetes.io/not-ready", "NoExecute"), tolerationSeconds: 30 },
  ]),
  heavy: runtimeClass("heavy", [exists("dedicated")], { overhead: { podFixed: { cpu: "250m", memory: "64Mi" } } }),
  picky: runtimeClass("picky", [{ operator: "Exists", effect: "NoSchedule" }], {}, { env: "prod", a: "b" }),
  plain: object("node.k8s.io/v1", "RuntimeClass", "plain", { handler: "plain" }),
};

/** Pods that run on them can only be changed by them where they say that they can. */
const features = ["InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers"];
const [region, zone, os] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone", "kubernetes.io/os"];
const node = (name: string, labels: Record<string, string>, status: JsonMap) =>
  object("v1", "Node", name, { status }, { labels });
const large = { allocatable: { cpu: "64", memory: "64Gi", "ephemeral-storage": "100Gi" } };
const nodes = [
  node("n1", { [os]: "linux", [zone]: "z1", [region]: "r1", rack: "a" }, { ...large, declaredFeatures: features }),
  node("n2", { [zone]: "z2" }, { ...large, declaredFeatures: features.slice(1) }),
  node("old", { [region]: "" }, large),
  node("small", { [os]: "linux" }, { allocatable: { cpu: "500m", memory: "256Mi" }, declaredFeatures: features }),
  node("bare", {}, { declaredFeatures: features }),
  node("windows", { [os]: "windows", [zone]: "z1" }, { ...large, declaredFeatures: features }),
];

const claim = (namespace: Home, name: string, storageClassName: string, phase: string, annotations: JsonMap = {}) => {
  const spec = { accessModes: ["ReadWriteOnce"], resources: { requests: { storage: "1Gi" } }, storageClassName };
  const status = { phase, capacity: { storage: "1Gi" }, accessModes: ["ReadWriteOnce"] };
  return object("v1", "PersistentVolumeClaim", name, { spec, status }, { namespace, annotations });
};
const beta = "volume.beta.kubernetes.io/storage-class";
const claims = [
  claim("default", "bound-fast", "fast", "Bound"),
  claim("default", "bound-slow", "slow", "Bound"),
  claim("default", "bound-to-none", "", "Bound"),
  claim("default", "bound-to-missing", "missing", "Bound"),
  claim("default", "bound-as-before", "slow", "Bound", { [beta]: "fast" }),
  claim("default", "lost", "fast", "Lost"),
  claim("limited", "bound-within", "fast", "Bound"),
];

const gang = { gang: { minCount: 2 } };
const podGroup = (name: string, schedulingPolicy: JsonMap, metadata: JsonMap = {}) =>
  object(
    "scheduling.k8s.io/v1alpha2",
    "PodGroup",
    name,
    { spec: { schedulingPolicy } },
    { namespace: "grouped", ...metadata },
  );
const workload = (name: string) =>
  object(
    ...(["scheduling.k8s.io/v1alpha2", "Workload", name] as const),
    {
      spec: {
        podGroupTemplates: [
          { name: "workers", schedulingPolicy: gang },
          { name: "driver", schedulingPolicy: { basic: {} } },
        ],
      },
    },
    // It stays when it is deleted.
    { namespace: "grouped", finalizers: ["example.com/keep"] },
  );
const job = (name: string, podGroupName?: string) => {
  const containers = [{ name: "a", image: "app:1" }];
  const template = {
    spec: { restartPolicy: "Never", containers, ...(podGroupName && { schedulingGroup: { podGroupName } }) },
  };
  return object(
    "batch/v1",
    "Job",
    name,
    { spec: { parallelism: 2, completions: 4, template } },
    { namespace: "grouped" },
  );
};
/** Its uid is known once it is there. */
const controlledBy = (name: string) => ({
  ownerReferences: [{ apiVersion: "batch/v1", kind: "Job", name, controller: true, uid: "" }],
});
const groups = [
  ...[workload("work"), workload("ended-work")],
  ...[podGroup("gang", gang), podGroup("loose", { basic: {} })],
  ...[
    job("alone"),
    job("ganged", "gang"),
    job("loose", "loose"),
    job("lonely", "missing"),
    job("leader"),
    job("gentle"),
  ],
  podGroup("led", gang, controlledBy("leader")),
  podGroup("gently-led", { basic: {} }, controlledBy("gentle")),
];

const rbac = "rbac.authorization.k8s.io";
/** Builds a ClusterRole with these rules, and its binding to a user or group. */
const role = (name: string, kind: "User" | "Group", rules: JsonMap[]) => [
  object(`${rbac}/v1`, "ClusterRole", name, { rules }),
  object(`${rbac}/v1`, "ClusterRoleBinding", name, {
    roleRef: { apiGroup: rbac, kind: "ClusterRole", name },
    subjects: [{ apiGroup: rbac, kind, name }],
  }),
];
const all = (verbs: string[]) => ({ apiGroups: ["*"], resources: ["*"], verbs });
const mostVerbs = ["get", "list", "create", "patch"];
const roles = [
  // May change finalizers of some owners, and delete some of what is owned; an update of all would be one of finalizers.
  ...role("jane", "User", [
    all(mostVerbs),
    { apiGroups: [""], resources: ["configmaps", "services", "pods"], verbs: ["update"] },
    { apiGroups: [""], resources: ["configmaps", "persistentvolumeclaims"], verbs: ["delete", "deletecollection"] },
    { apiGroups: ["apps"], resources: ["deployments/finalizers"], verbs: ["update"] },
    { apiGroups: [""], resources: ["nodes/finalizers"], resourceNames: ["n1"], verbs: ["update"] },
    signing,
  ]),
  ...role("system:nodes", "Group", [all([...mostVerbs, "delete", "deletecollection"])]),
];

/** In this order: what others need is there before them. */
const objects: Named[] = [
  ...Object.entries(homes).map(([name, metadata]) => object("v1", "Namespace", name, {}, metadata)),
  ...[...limitRanges, ...accounts, ...classes, ...Object.values(runtimeClasses)],
  ...[...nodes, ...claims, ...groups, ...roles, ...securedPods, ...ofNodes],
];
/** Deleted, and still there. */
const ending = [object("v1", "Namespace", "ending"), workload("ended-work")];

const collectionOf = ({ apiVersion, kind, metadata: { namespace } }: Named) =>
  [
    apiVersion === "v1" ? "/api/v1" : `/apis/${apiVersion}`,
    ...(namespace === undefined ? [] : ["namespaces", namespace]),
    plural(kind),
  ].join("/");

/** Makes all of it, or all but groups, where they aren't served. */
export const furnish = async (admin: Client, hasGroups: boolean): Promise<void> => {
  const isServed = ({ apiVersion }: Named) => hasGroups || !apiVersion.startsWith("scheduling.k8s.io/v1alpha");
  const send = async (method: "POST" | "PATCH" | "DELETE", path: string, body?: object) => {
    const answer = await admin({
      method,
      path,
      body,
      ...(method === "PATCH" && { contentType: "application/merge-patch+json" }),
    });
    if (answer.code >= 300) throw new Error(`the API server refuses ${path}: ${answer.body.message}`);
    return answer.body;
  };
  const uids = new Map<string, unknown>();
  for (const { status, ...one } of objects.filter(isServed)) {
    const [collection, { name, ownerReferences }] = [collectionOf(one), one.metadata];
    const owners =
      Array.isArray(ownerReferences) && ownerReferences.map((owner) => ({ ...owner, uid: uids.get(owner.name) }));
    const { metadata } = await send("POST", collection, {
      ...one,
      metadata: { ...one.metadata, ...(owners && { ownerReferences: owners }) },
    });
    uids.set(name, Object(metadata).uid);
    if (status) await send("PATCH", `${collection}/${name}/status`, { status });
  }
  for (const one of ending.filter(isServed)) await send("DELETE", `${collectionOf(one)}/${one.metadata.name}`);
};
