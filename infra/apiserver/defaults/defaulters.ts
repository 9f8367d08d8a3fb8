import { isMap, type JsonMap } from "#lib/json.ts";
import { mergeSince, type Since } from "#lib/since.ts";
import { type Defaulters, getList, getMember, podConversions, podDefaulters } from "./pods.ts";

/** Sets defaults in core objects that depend on other fields. `original` still has empty maps, which decoding drops. */
const coreDefaulters: Defaulters = {
  Namespace: (namespace) => {
    const metadata = getMember(namespace, "metadata");
    if (metadata.name)
      metadata.labels = { ...getMember(metadata, "labels"), "kubernetes.io/metadata.name": metadata.name };
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
  Service: (service) => setServiceDefaults(getMember(service, "spec"), getMember(service, "status")),
};

/** Completes workloads whose defaults depend on other fields. */
const workloadDefaulters: Defaulters = {
  ReplicationController: (controller) => {
    const { labels } = getMember(getMember(getMember(controller, "spec"), "template"), "metadata");
    if (labels === undefined) return;
    getMember(controller, "spec").selector ??= labels;
    getMember(controller, "metadata").labels ??= labels;
  },
  DeploymentStrategy: (strategy) => fillRollingUpdate(strategy, { maxUnavailable: "25%", maxSurge: "25%" }),
  DaemonSetUpdateStrategy: (strategy) => fillRollingUpdate(strategy, { maxUnavailable: 1, maxSurge: 0 }),
  StatefulSetUpdateStrategy: (strategy) => setStatefulSetStrategyDefaults(strategy),
};

/** Completes objects of other APIs. `original` is the object before it got its fixed defaults. */
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
      // An empty list of policies gets no default, but decoding has dropped it from `behavior`.
      const hasPolicies = Array.isArray(getMember(original, direction).policies);
      behavior[direction] = { ...others, ...(!hasPolicies && { policies }), ...getMember(behavior, direction) };
    }
  },
};

const generation = "deprecated.daemonset.template.generation";
const rbac = "rbac.authorization.k8s.io";

const fillRollingUpdate = (strategy: JsonMap, usual: JsonMap): void => {
  if (strategy.type === "RollingUpdate") strategy.rollingUpdate = { ...usual, ...getMember(strategy, "rollingUpdate") };
};

/** Sets numbers to 0 that are still absent after defaulting, as the conversion to the internal version does. */
const fillRollingUpdateWithZeros = ({ rollingUpdate }: JsonMap): void => {
  if (isMap(rollingUpdate)) Object.assign(rollingUpdate, { maxUnavailable: 0, maxSurge: 0, ...rollingUpdate });
};

/** Sets the defaults of a Service that depend on its type. */
const setServiceDefaults = (spec: JsonMap, status: JsonMap): void => {
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

const setStatefulSetStrategyDefaults = (strategy: JsonMap): void => {
  const isNew = strategy.type === undefined;
  strategy.type ??= "RollingUpdate";
  if (isNew) strategy.rollingUpdate ??= {};
  if (strategy.rollingUpdate) getMember(strategy, "rollingUpdate").partition ??= 0;
};

const setConditionPatternDefaults = (pattern: JsonMap): void => {
  pattern.status ||= "True";
};

/** Effects of the conversion to the API server's internal version and back. */
const conversions: Defaulters = {
  Secret: (secret) => {
    const texts = Object.entries(getMember(secret, "stringData"));
    delete secret.stringData;
    if (texts.length > 0)
      secret.data = Object.fromEntries([
        ...Object.entries(getMember(secret, "data")),
        ...texts.map(([key, text]) => [key, Buffer.from(String(text)).toString("base64")]),
      ]);
  },
  // `podCIDR` repeats the first of `podCIDRs`; if they differ, the singular field wins.
  NodeSpec: (spec) => {
    const [first] = getList(spec, "podCIDRs");
    if (spec.podCIDR !== undefined && first !== spec.podCIDR) spec.podCIDRs = [spec.podCIDR];
    else if (first) spec.podCIDR = first;
  },
  DeploymentStrategy: fillRollingUpdateWithZeros,
  DaemonSetUpdateStrategy: fillRollingUpdateWithZeros,
  DaemonSet: (set) => {
    const metadata = getMember(set, "metadata");
    metadata.annotations = { [generation]: "0", ...getMember(metadata, "annotations") };
  },
  StatefulSetSpec: (spec) => {
    for (const claim of getList(spec, "volumeClaimTemplates"))
      Object.assign(claim, { apiVersion: "v1", kind: "PersistentVolumeClaim" });
  },
};

/** Sets the defaults of a Job that depend on its other fields. */
const setJobDefaults = (job: JsonMap): void => {
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
};

/**
 * Defaults that depend on other fields, by type and by the minor that changed them. The functions run only if the
 * object could be decoded, on children first; members have the types of types.json.
 */
const defaultersSince: Since<Defaulters> = {
  "1.0": {
    ...coreDefaulters,
    ...workloadDefaulters,
    ...otherDefaulters,
    Job: (job) => {
      setJobDefaults(job);
      for (const rule of getList(getMember(getMember(job, "spec"), "podFailurePolicy"), "rules"))
        for (const pattern of getList(rule, "onPodConditions")) setConditionPatternDefaults(pattern);
    },
  },
  // Before 1.34, onPodConditions gets defaults in Jobs, but not in the templates of CronJobs.
  "1.34": { Job: (job) => setJobDefaults(job), PodFailurePolicyOnPodConditionsPattern: setConditionPatternDefaults },
  "1.37": {
    StatefulSetUpdateStrategy: (strategy) => {
      setStatefulSetStrategyDefaults(strategy);
      if (strategy.type === "RollingUpdate" && strategy.rollingUpdate)
        getMember(strategy, "rollingUpdate").maxUnavailable ??= 1;
    },
  },
};

/** Returns, by the type of an object, the functions that set its defaults in a minor version of Kubernetes. */
export const selectDefaulters = (kubernetes?: string): Defaulters => {
  return { ...mergeSince(defaultersSince, kubernetes), ...mergeSince(podDefaulters, kubernetes) };
};

/** Returns, by type, the functions that do what a minor's conversion to the internal version and back does. */
export const selectConversions = (kubernetes?: string): Defaulters => {
  return { ...conversions, ...mergeSince(podConversions, kubernetes) };
};
