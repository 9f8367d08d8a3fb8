import type { JsonMap } from "#lib/json.ts";
import { type Defaulters, getList, getMember, podDefaulters } from "./pods.ts";

const coreDefaulters: Defaulters = {
  Secret: (secret) => {
    const texts = Object.entries(getMember(secret, "stringData"));
    delete secret.stringData;
    if (texts.length > 0)
      secret.data = Object.fromEntries([
        ...Object.entries(getMember(secret, "data")),
        ...texts.map(([key, text]) => [key, Buffer.from(String(text)).toString("base64")]),
      ]);
  },
  Namespace: (namespace) => {
    const metadata = getMember(namespace, "metadata");
    if (metadata.name)
      metadata.labels = { ...getMember(metadata, "labels"), "kubernetes.io/metadata.name": metadata.name };
  },
  // `podCIDR` repeats the first of `podCIDRs`; if they differ, the singular field wins. The same holds for `podIP`.
  NodeSpec: (spec) => {
    const [first] = getList(spec, "podCIDRs");
    if (spec.podCIDR !== undefined && first !== spec.podCIDR) spec.podCIDRs = [spec.podCIDR];
    else if (first) spec.podCIDR = first;
  },
  PodStatus: (status) => {
    const [first] = getList(status, "podIPs");
    if (status.podIP !== undefined && first?.ip !== status.podIP) status.podIPs = [{ ip: status.podIP }];
    else if (first?.ip) status.podIP = first.ip;
  },
  NodeStatus: (status, original) => {
    if (status.capacity !== undefined && original.allocatable == null)
      status.allocatable = { ...getMember(status, "capacity") };
  },
  LimitRangeItem: (item) => {
    if (item.type !== "Container") return;
    const limits = { ...getMember(item, "max"), ...getMember(item, "default") };
    const requests = { ...getMember(item, "min"), ...limits, ...getMember(item, "defaultRequest") };
    if (Object.keys(limits).length > 0) item.default = limits;
    if (Object.keys(requests).length > 0) item.defaultRequest = requests;
  },
  ServicePort: (port) => {
    if (port.targetPort === 0 || port.targetPort === "") port.targetPort = port.port;
  },
  Service: (service) => finishService(getMember(service, "spec"), getMember(service, "status")),
};

const workloadDefaulters: Defaulters = {
  ReplicationController: (controller) => {
    const { labels } = getMember(getMember(getMember(controller, "spec"), "template"), "metadata");
    if (labels === undefined) return;
    getMember(controller, "spec").selector ??= labels;
    getMember(controller, "metadata").labels ??= labels;
  },
  DeploymentStrategy: (strategy) => finishRolling(strategy, { maxUnavailable: "25%", maxSurge: "25%" }),
  DaemonSetUpdateStrategy: (strategy) => finishRolling(strategy, { maxUnavailable: 1, maxSurge: 0 }),
  DaemonSet: (set) => {
    const metadata = getMember(set, "metadata");
    metadata.annotations = { [generation]: "0", ...getMember(metadata, "annotations") };
  },
  StatefulSetUpdateStrategy: (strategy) => {
    const isNew = strategy.type === undefined;
    strategy.type ??= "RollingUpdate";
    if (isNew) strategy.rollingUpdate ??= {};
    if (strategy.rollingUpdate) getMember(strategy, "rollingUpdate").partition ??= 0;
  },
  StatefulSetSpec: (spec) => {
    for (const claim of getList(spec, "volumeClaimTemplates"))
      Object.assign(claim, { apiVersion: "v1", kind: "PersistentVolumeClaim" });
  },
  Job: (job) => {
    const spec = getMember(job, "spec");
    if (spec.completions === undefined && spec.parallelism === undefined) spec.completions = 1;
    spec.parallelism ??= 1;
    spec.backoffLimit ??= spec.backoffLimitPerIndex === undefined ? 6 : 2 ** 31 - 1;
    spec.completionMode ??= "NonIndexed";
    spec.suspend ??= false;
    spec.podReplacementPolicy ??= spec.podFailurePolicy === undefined ? "TerminatingOrFailed" : "Failed";
    spec.manualSelector ??= false;
    const { labels } = getMember(getMember(spec, "template"), "metadata");
    if (labels !== undefined) getMember(job, "metadata").labels ??= labels;
  },
  PodFailurePolicyOnPodConditionsPattern: (pattern) => {
    pattern.status ||= "True";
  },
};

const otherDefaulters: Defaulters = {
  NetworkPolicySpec: (spec) => {
    spec.policyTypes ??= spec.egress === undefined ? ["Ingress"] : ["Ingress", "Egress"];
  },
  RoleRef: (role) => {
    role.apiGroup ||= rbac;
  },
  Subject: (subject) => {
    if (["User", "Group"].includes(String(subject.kind))) subject.apiGroup ??= rbac;
  },
  HorizontalPodAutoscalerSpec: (spec) => {
    const target = { type: "Utilization", averageUtilization: 80 };
    spec.metrics ??= [{ type: "Resource", resource: { name: "cpu", target } }];
  },
  HorizontalPodAutoscalerBehavior: (behavior, original) => {
    const percent = { type: "Percent", value: 100, periodSeconds: 15 };
    const pods = { type: "Pods", value: 4, periodSeconds: 15 };
    const usual = {
      scaleUp: { stabilizationWindowSeconds: 0, selectPolicy: "Max", policies: [pods, percent] },
      scaleDown: { selectPolicy: "Max", policies: [percent] },
    };
    for (const [direction, { policies, ...others }] of Object.entries(usual)) {
      const isGiven = Array.isArray(getMember(original, direction).policies);
      behavior[direction] = { ...others, ...(!isGiven && { policies }), ...getMember(behavior, direction) };
    }
  },
};

const generation = "deprecated.daemonset.template.generation";
const rbac = "rbac.authorization.k8s.io";

/**
 * Fills in maxUnavailable and maxSurge of an update strategy. Absent ones become 0 in the API server's internal
 * version if the strategy's type is not RollingUpdate.
 */
const finishRolling = (strategy: JsonMap, usual: JsonMap): void => {
  const isRolling = strategy.type === "RollingUpdate";
  const filling = isRolling ? usual : { maxUnavailable: 0, maxSurge: 0 };
  if (isRolling || strategy.rollingUpdate)
    strategy.rollingUpdate = { ...filling, ...getMember(strategy, "rollingUpdate") };
};

const finishService = (spec: JsonMap, status: JsonMap): void => {
  if (spec.sessionAffinity === "None") delete spec.sessionAffinityConfig;
  if (spec.sessionAffinity === "ClientIP") {
    const { timeoutSeconds } = getMember(getMember(spec, "sessionAffinityConfig"), "clientIP");
    if (timeoutSeconds === undefined) spec.sessionAffinityConfig = { clientIP: { timeoutSeconds: 10_800 } };
  }
  const isBalanced = spec.type === "LoadBalancer";
  const isCluster = spec.type === "ClusterIP";
  if (isBalanced || spec.type === "NodePort" || (isCluster && spec.externalIPs !== undefined))
    spec.externalTrafficPolicy ??= "Cluster";
  if (isBalanced || spec.type === "NodePort" || isCluster) spec.internalTrafficPolicy ??= "Cluster";
  if (!isBalanced) return;
  spec.allocateLoadBalancerNodePorts ??= true;
  for (const ingress of getList(getMember(status, "loadBalancer"), "ingress"))
    if (ingress.ip !== undefined) ingress.ipMode ??= "VIP";
};

/**
 * Defaults that depend on other fields, and effects of the API server's internal conversions, by type. The defaulters
 * run on
 * values without misfits, children first; members have the types of types.json.
 */
export const defaultersByType: Defaulters = {
  ...podDefaulters,
  ...coreDefaulters,
  ...workloadDefaulters,
  ...otherDefaulters,
};
