import fc, { type Arbitrary } from "fast-check";
import type { JsonMap } from "#lib/json.ts";
import { createObjectGenerators } from "./object-generators.ts";
import { buildEditStep, generateCreateStep, generateEditLists, labelSteps, wrapInList } from "./scenario-parts.ts";
import {
  addSometimes,
  generateFieldEdit,
  generateObjects,
  pickOne,
  type RequestSequence,
  requestOptions,
  type SequenceQuota,
  type SequenceRequest,
} from "./steps.ts";

// Generates requests about objects that are counted by quotas in the sequence's own namespace.

const generators = createObjectGenerators({ mayBeInvalid: false });

// Amounts in quotas. To shrink a sequence, fast-check replaces an amount by the first one, which is large.
const smallCounts = pickOne("9", "5", "3", "2", "1", "0");
const cpu = pickOne("40e0", "30", "20", "8", "3e0", "1500m", "250e-3", "0");
const bytes = pickOne("40Gi", "50e9", "40G", "20Gi", "3Gi", "1.5Gi", "1e9", "9223372036854775807", "0");

/** Returns an object with these names, which all have the same generator of amounts. */
const withAmount = (amount: Arbitrary<string>, ...names: string[]) =>
  Object.fromEntries(names.map((name) => [name, amount]));

/**
 * For each kind: the names of resources that a quota may limit for objects of this kind, with generated amounts. A
 * limit of another kind (`count/deployments.apps` for ConfigMaps, `pods` for Deployments) must have no effect.
 */
const amounts = {
  pods: {
    ...withAmount(smallCounts, "pods", "count/pods", "requests.example.com/gpu"),
    ...withAmount(smallCounts, "requests.deviceclass.resource.kubernetes.io/gpu"),
    ...withAmount(cpu, "cpu", "requests.cpu", "limits.cpu"),
    ...withAmount(bytes, "memory", "requests.memory", "limits.memory", "requests.ephemeral-storage", "hugepages-2Mi"),
  },
  services: withAmount(smallCounts, "services", "count/services", "services.nodeports", "services.loadbalancers"),
  persistentvolumeclaims: {
    ...withAmount(smallCounts, "persistentvolumeclaims", "count/persistentvolumeclaims"),
    ...withAmount(smallCounts, "slow.storageclass.storage.k8s.io/persistentvolumeclaims"),
    ...withAmount(bytes, "requests.storage", "fast.storageclass.storage.k8s.io/requests.storage"),
  },
  resourceclaims: withAmount(
    pickOne("90", "40", "5", "2", "0"),
    "count/resourceclaims.resource.k8s.io",
    "gpu.deviceclass.resource.k8s.io/devices",
    "nic.deviceclass.resource.k8s.io/devices",
    "requests.deviceclass.resource.kubernetes.io/gpu",
    "requests.deviceclass.resource.kubernetes.io/nic",
    "requests.example.com/gpu",
  ),
  configmaps: withAmount(smallCounts, "configmaps", "count/configmaps", "count/deployments.apps"),
  deployments: withAmount(smallCounts, "count/deployments.apps", "pods"),
} satisfies Record<string, Record<string, Arbitrary<string>>>;
type QuotaKind = keyof typeof amounts;

/** Generates scopes of a quota that select pods or claims by their classes. */
const classScope = fc
  .record({
    scopeName: pickOne("PriorityClass", "PriorityClass", "VolumeAttributesClass"),
    operator: pickOne("In", "NotIn", "Exists", "DoesNotExist"),
    values: fc.subarray(["high", "gold", "silver"], { minLength: 1 }),
  })
  .map(({ values, ...scope }) => (/In$/.test(scope.operator) ? { ...scope, values } : scope));
const crossNamespaceScope = { scopeName: "CrossNamespacePodAffinity", operator: "Exists" };
/**
 * With a scope, a quota may limit only some resources, and the API server refuses other quotas. So most have no scope.
 */
const scopes: Arbitrary<JsonMap> = fc.oneof(
  { weight: 9, arbitrary: pickOne({}) },
  {
    weight: 3,
    arbitrary: pickOne(
      { scopes: ["BestEffort"] },
      { scopes: ["NotBestEffort", "NotTerminating"] },
      { scopes: ["Terminating"] },
      { scopes: ["PriorityClass"] },
      { scopeSelector: { matchExpressions: [crossNamespaceScope] } },
    ),
  },
  { weight: 2, arbitrary: classScope.map((scope) => ({ scopeSelector: { matchExpressions: [scope] } })) },
);

/** Generates a list of quotas: mostly one, sometimes two or none. */
const buildQuotas = (kind: QuotaKind): Arbitrary<SequenceQuota[]> =>
  fc.oneof(
    { weight: 5, arbitrary: fc.tuple(buildQuota(kind)) },
    { weight: 1, arbitrary: fc.tuple(buildQuota(kind), buildQuota(kind)) },
    { weight: 1, arbitrary: pickOne([]) },
  );
/** Generates a quota. Mostly nothing is used yet, and in few quotas, the status lacks the first used amount. */
const buildQuota = (kind: QuotaKind): Arbitrary<SequenceQuota> =>
  fc
    .record({
      hard: fc.tuple(
        generateObjects(amounts[kind]),
        fc.subarray(Object.keys(amounts[kind]), { maxLength: Math.min(4, Object.keys(amounts[kind]).length) }),
      ),
      used: generateObjects(amounts[kind]),
      isUnused: fc.noBias(fc.nat(3)).map((chance) => chance > 0),
      isComplete: fc.noBias(fc.nat(15)).map((chance) => chance > 0),
      scopes,
    })
    .map(({ hard: [allAmounts, limitedNames], used, isUnused, isComplete, scopes }) => {
      const hard = Object.fromEntries(limitedNames.map((name) => [name, allAmounts[name]]));
      const usedNames = limitedNames.slice(isComplete ? 0 : 1);
      return {
        spec: { hard, ...scopes },
        status: { hard, used: Object.fromEntries(usedNames.map((name) => [name, isUnused ? "0" : used[name]])) },
      };
    });

/** Builds sequences that create and change several objects under quotas. The last request reads the quotas. */
const buildQuotaScenario = (
  kind: QuotaKind,
  body: Arbitrary<JsonMap>,
  changes: Arbitrary<SequenceRequest>[] = [labelSteps],
): Arbitrary<RequestSequence> =>
  fc
    .record({
      quotas: buildQuotas(kind),
      first: generateCreateStep(body),
      steps: fc.array(fc.oneof(generateCreateStep(body), ...changes), { minLength: 1, maxLength: 5 }),
      generateName: pickOne(true, true, true, false),
    })
    .map(({ quotas, first, steps, generateName }): RequestSequence => {
      const last: SequenceRequest = { user: "admin", dryRun: false, verb: "look", at: "resourcequotas" };
      return { kind, quotas, generateName, steps: [first, ...steps, last] };
    });

const image = "registry.example.com/app:1";
const requested = generateObjects({
  cpu: addSometimes(pickOne("100m", "250e-3", "0.5", "1", "1.500"), "in 9 of 10"),
  memory: addSometimes(pickOne("32Mi", "64.5Mi", "2Ki", "1Gi", "1e9"), "in 9 of 10"),
  "ephemeral-storage": addSometimes(pickOne("1Gi", "1G")),
});
const allLimits = { cpu: "8", memory: "8Gi", "ephemeral-storage": "9Gi" };
const devices = pickOne({ "example.com/gpu": "1" }, { "example.com/gpu": "2", "hugepages-2Mi": "4Mi" });
/** Generates the resources of a container, mostly with limits. With devices, which need limits, it has all of them. */
const resources = fc
  .record({
    requests: requested,
    hasLimits: addSometimes(pickOne(true), "in 9 of 10"),
    devices: addSometimes(devices, "in 1 of 6"),
  })
  .map(({ requests, hasLimits, devices }) => ({
    requests: { ...requests, ...devices },
    ...((hasLimits || devices) && { limits: { ...allLimits, ...devices } }),
  }));
const buildContainers = (prefix: string, maxLength: number, moreFields: Arbitrary<JsonMap> = pickOne({})) =>
  fc.array(fc.tuple(addSometimes(resources, "in 15 of 16"), moreFields), { minLength: 1, maxLength }).map((all) =>
    all.map(([resources, fields], index) => {
      return { name: `${prefix}${index}`, image, ...(resources && { resources }), ...fields };
    }),
  );
const term = fc.record(
  {
    topologyKey: pickOne("zone"),
    labelSelector: pickOne({}),
    namespaces: pickOne(["default"]),
    namespaceSelector: pickOne({}),
  },
  { requiredKeys: ["topologyKey", "labelSelector"] },
);
const affinity = fc.oneof(
  term.map((one) => ({ podAffinity: { requiredDuringSchedulingIgnoredDuringExecution: [one] } })),
  term.map((podAffinityTerm) => ({
    podAntiAffinity: { preferredDuringSchedulingIgnoredDuringExecution: [{ weight: 1, podAffinityTerm }] },
  })),
);
const podLevelResources = pickOne({ requests: { cpu: "9", memory: "9Gi" } }, { limits: { cpu: "9" } }, {});
/** Generates pods with all fields that quotas read. */
const pod = generateObjects({
  containers: buildContainers("c", 2),
  initContainers: addSometimes(buildContainers("i", 2, pickOne({}, { restartPolicy: "Always" })), "in 1 of 4"),
  resources: addSometimes(podLevelResources, "in 1 of 9"),
  overhead: addSometimes(pickOne({ cpu: "250m", memory: "64Mi" }), "in 1 of 6"),
  activeDeadlineSeconds: addSometimes(pickOne(60), "in 1 of 4"),
  priorityClassName: addSometimes(pickOne("high", "gold", "silver"), "in 1 of 4"),
  affinity: addSometimes(affinity, "in 1 of 5"),
}).map((spec) => ({ apiVersion: "v1", kind: "Pod", metadata: {}, spec }));

const resize = buildEditStep(
  generateEditLists(
    generateFieldEdit("spec.containers.0.resources.requests.cpu", pickOne("100m", "700m", "2")),
    generateFieldEdit("spec.containers.0.resources.requests.memory", pickOne("32Mi", "1Gi", "2Gi")),
  ),
  "resize",
);
/** Sets a deadline, so that the pod belongs to the scope Terminating. */
const setDeadline = buildEditStep(wrapInList(generateFieldEdit("spec.activeDeadlineSeconds", pickOne(30, 60))));
/** Sets the status that the kubelet reports while a resize isn't finished. */
const reportResize = buildEditStep(
  generateEditLists(
    generateFieldEdit(
      "status.containerStatuses",
      fc
        .record({ allocatedResources: requested, requests: requested, limits: pickOne({ cpu: "9" }, {}) })
        .map(({ allocatedResources, ...resources }) => {
          return [{ name: "c0", image, imageID: "", ready: true, restartCount: 0, allocatedResources, resources }];
        }),
    ),
    generateFieldEdit(
      "status.conditions",
      pickOne(
        undefined,
        [{ type: "PodResizePending", status: "True", reason: "Infeasible" }],
        [{ type: "PodResizePending", status: "True", reason: "Deferred" }],
      ),
    ),
    generateFieldEdit("status.phase", pickOne("Running", "Running", "Failed")),
  ),
  "status",
);

/** Generates PersistentVolumeClaims, some of which name their class by the older annotation. */
const claim = fc
  .record({
    storage: pickOne("1Gi", "2G", "1e9", "1500m", "512Mi"),
    storageClassName: addSometimes(pickOne("fast", "slow", "gold", ""), "in 3 of 4"),
    volumeAttributesClassName: addSometimes(pickOne("gold", "silver"), "in 1 of 4"),
    betaClass: addSometimes(pickOne("fast", "slow"), "in 1 of 7"),
  })
  .map(({ storage, betaClass, ...spec }) => ({
    apiVersion: "v1",
    kind: "PersistentVolumeClaim",
    metadata: betaClass === undefined ? {} : { annotations: { "volume.beta.kubernetes.io/storage-class": betaClass } },
    spec: { accessModes: ["ReadWriteOnce"], resources: { requests: { storage } }, ...spec },
  }));
/** Sets the status of a claim as a controller does when it binds the claim. */
const bind = buildEditStep(
  generateEditLists(
    generateFieldEdit("status.phase", pickOne("Bound")),
    generateFieldEdit("status.capacity.storage", pickOne("1Gi")),
    generateFieldEdit("status.allocatedResources.storage", pickOne(undefined, "3Gi", "1G")),
    generateFieldEdit("status.currentVolumeAttributesClassName", pickOne(undefined, "gold")),
  ),
  "status",
);
const grow = buildEditStep(
  wrapInList(generateFieldEdit("spec.resources.requests.storage", pickOne("2Gi", "3Gi", "5Gi", "1.5Gi"))),
);

/** Generates Services with one to three ports. */
const service = fc
  .record({
    type: pickOne("ClusterIP", "NodePort", "LoadBalancer"),
    ports: fc.integer({ min: 1, max: 3 }),
    allocateLoadBalancerNodePorts: addSometimes(fc.boolean(), "in 1 of 3"),
  })
  .map(({ type, ports, allocateLoadBalancerNodePorts: allocates }) => ({
    apiVersion: "v1",
    kind: "Service",
    metadata: {},
    spec: {
      type,
      ports: Array.from({ length: ports }, (_, index) => ({ name: `p${index}`, port: 80 + index })),
      ...(type === "LoadBalancer" && allocates !== undefined && { allocateLoadBalancerNodePorts: allocates }),
    },
  }));
const retype = buildEditStep(
  wrapInList(generateFieldEdit("spec.type", pickOne("NodePort", "LoadBalancer", "ClusterIP"))),
);
const addPort = buildEditStep(wrapInList(generateFieldEdit("spec.ports.-", pickOne({ name: "more", port: 8080 }))));

/** Generates requests for devices of one class. */
const exactRequest = fc
  .record({
    deviceClassName: pickOne("gpu", "gpu", "nic", "other"),
    allocationMode: addSometimes(pickOne("ExactCount", "ExactCount", "All"), "in 2 of 3"),
    count: fc.integer({ min: 1, max: 4 }),
  })
  .map(({ deviceClassName, allocationMode, count }) => ({
    deviceClassName,
    ...(allocationMode !== "All" && { count }),
    ...(allocationMode && { allocationMode }),
  }));
const deviceRequest = fc.oneof(
  exactRequest.map((exactly) => ({ exactly })),
  fc
    .array(exactRequest, { minLength: 1, maxLength: 3 })
    .map((all) => ({ firstAvailable: all.map((one, index) => ({ name: `s${index}`, ...one })) })),
);
const deviceClaim = fc.array(deviceRequest, { maxLength: 3 }).map((all) => ({
  apiVersion: "resource.k8s.io/v1",
  kind: "ResourceClaim",
  metadata: {},
  spec: { devices: { requests: all.map((one, index) => ({ name: `r${index}`, ...one })) } },
}));

/** Deletes the object. The quotas still count it, because no quota controller runs. */
const remove: Arbitrary<SequenceRequest> = requestOptions.map((options) => ({
  ...options,
  verb: "delete",
  graceful: false,
}));

/** Scenarios for ResourceQuota, by name. A change that is listed twice is picked more often than others. */
export const quotaScenarios = {
  quotasOfPods: buildQuotaScenario("pods", pod, [resize, setDeadline, reportResize, labelSteps]),
  quotasOfServices: buildQuotaScenario("services", service, [retype, addPort, labelSteps]),
  quotasOfClaims: buildQuotaScenario("persistentvolumeclaims", claim, [bind, bind, grow, grow, labelSteps]),
  quotasOfDevices: buildQuotaScenario("resourceclaims", deviceClaim),
  quotasOfObjects: fc.oneof(
    buildQuotaScenario("configmaps", generators.buildObject("configmaps"), [remove, labelSteps]),
    buildQuotaScenario("deployments", generators.buildObject("deployments"), [remove, labelSteps]),
  ),
};
