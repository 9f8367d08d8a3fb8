import fc, { type Arbitrary } from "fast-check";
import type { JsonMap } from "#lib/json.ts";
import { certificateScenarios } from "./certificates.ts";
import { eventRateLimitScenarios } from "./events.ts";
import { mutatingPolicyScenarios } from "./mutating-policies.ts";
import { nodeScenarios } from "./nodes.ts";
import { createObjectGenerators } from "./object-generators.ts";
import { podSecurityScenarios } from "./pod-security.ts";
import { quotaScenarios } from "./quotas.ts";
import {
  buildDryRunScenario,
  buildEditStep,
  buildScenario,
  deletionStep,
  generateCreateStep,
  generateEditLists,
  labelSteps,
  wrapInList,
} from "./scenario-parts.ts";
import {
  addSometimes,
  buildList,
  type FieldEdit,
  type GeneratedKind,
  generateFieldEdit,
  generateObjects,
  pickOne,
  type RequestSequence,
  type RequestUser,
  requestOptions,
  type SequenceRequest,
} from "./steps.ts";
import { generatorRuntimeClassNames } from "./surroundings.ts";
import { validatingPolicyScenarios } from "./validating-policies.ts";

// Generates planned sequences of requests for each plugin. Most of them are valid, and about fields that the plugin
// reads.

const generators = createObjectGenerators({ mayBeInvalid: false });

/** Builds sequences that create an object with this body, change it in some of these ways, and delete it. */
const buildObjectScenario = (kind: GeneratedKind, body: Arbitrary<JsonMap>, changes: Arbitrary<SequenceRequest>[]) =>
  buildScenario(kind, generateCreateStep(body), changes);

const image = "registry.example.com/app:1";
const buildPod = (spec: Arbitrary<JsonMap>, metadata: Arbitrary<JsonMap> = pickOne({})): Arbitrary<JsonMap> =>
  fc.tuple(spec, metadata).map(([spec, metadata]) => {
    return { apiVersion: "v1", kind: "Pod", metadata, spec: { containers: [{ name: "c0", image }], ...spec } };
  });

const cpu = pickOne("100m", "200m", "0.5", "1", "1.500", "2", "4");
const memory = pickOne("32Mi", "64Mi", "64.5Mi", "1Gi", "1e9", "3Gi");
const amounts = generateObjects({ cpu: addSometimes(cpu, "in 2 of 3"), memory: addSometimes(memory, "in 2 of 3") });
/**
 * Generates the resources of a container. An API server accepts all of them, except a request for 4 CPUs with a limit
 * of 2, which is rare.
 */
const mostlyValidResources = fc.oneof(
  generateObjects({ requests: amounts }),
  generateObjects({ limits: amounts }),
  generateObjects({
    requests: amounts,
    limits: pickOne({ cpu: "8", memory: "8Gi" }, { cpu: "2", memory: "3Gi" }),
  }),
  fc.tuple(cpu, memory).map(([cpu, memory]) => ({ requests: { cpu, memory }, limits: { cpu, memory } })),
  pickOne({}),
);
const buildContainer = (name: string, resources: Arbitrary<unknown> = mostlyValidResources) =>
  generateObjects({ name: pickOne(name), image: pickOne(image), resources: addSometimes(resources, "in 3 of 4") });

/** Generates pods whose resources are near the limits of a LimitRange. */
const podNearLimits = buildPod(
  generateObjects({
    containers: fc.oneof(fc.tuple(buildContainer("c0")), fc.tuple(buildContainer("c0"), buildContainer("c1"))),
    initContainers: addSometimes(
      fc
        .tuple(buildContainer("i0"), pickOne({}, { restartPolicy: "Always" }))
        .map(([one, restartPolicy]) => [{ ...one, ...restartPolicy }]),
      "in 1 of 3",
    ),
    resources: addSometimes(pickOne({ requests: { cpu: "3", memory: "4Gi" } }, { limits: { cpu: "4" } }), "in 1 of 7"),
  }),
  generateObjects({ annotations: addSometimes(pickOne({ "kubernetes.io/limit-ranger": "mine" }), "in 1 of 6") }),
);

/**
 * Generates resource requests without limits, so that the QoS class, which a resize can't change, is always Burstable.
 * A resize can't add a resource either, so `defaultRequests` fills in what is missing.
 */
const burstable = fc.tuple(cpu, memory).map(([cpu, memory]) => ({ requests: { cpu, memory } }));
const defaultRequests = { resources: { requests: { cpu: "1", memory: "1Gi" } } };
/** Builds pods on different nodes. `fields` adds init containers or pod-level resources, which can be resized, too. */
const buildPodOnNode = (fields: Record<string, Arbitrary<unknown>>) =>
  buildPod(
    generateObjects({
      containers: fc.tuple(buildContainer("c0", burstable).map((one) => ({ ...defaultRequests, ...one }))),
      nodeName: addSometimes(pickOne("n1", "n2", "old", "small", "bare", "windows", "gone"), "in 6 of 7"),
      overhead: addSometimes(pickOne({ cpu: "250m" }), "in 1 of 10"),
      ...fields,
    }),
  );
const buildResize = (...edits: Arbitrary<FieldEdit>[]) => buildEditStep(generateEditLists(...edits), "resize");
const resize = fc.oneof(
  buildResize(generateFieldEdit("spec.containers.0.resources.requests.cpu", cpu)),
  buildResize(
    generateFieldEdit("spec.containers.0.resources.requests.memory", memory),
    generateFieldEdit("spec.containers.0.resources.requests.cpu", cpu),
  ),
);
const initContainers = fc
  .tuple(buildContainer("i0", burstable), pickOne({}, {}, { restartPolicy: "Always" }))
  .map(([one, restartPolicy]) => [{ ...defaultRequests, ...one, ...restartPolicy }]);
const podLevelResources = pickOne({ requests: { cpu: "4", memory: "4Gi" }, limits: { cpu: "8", memory: "8Gi" } });
/** Generates limits that equal the requests, so that the QoS class is Guaranteed. */
const guaranteed = fc.tuple(cpu, memory).map(([cpu, memory]) => {
  return { requests: { cpu, memory }, limits: { cpu, memory } };
});
const resizeGuaranteed = cpu.chain((amount) =>
  buildResize(
    ...["requests", "limits"].map((member) =>
      generateFieldEdit(`spec.containers.0.resources.${member}.cpu`, pickOne(amount)),
    ),
  ),
);
/** Scenarios of pods whose resources are changed by the subresource `resize`. */
const resizeScenarios = fc.oneof(
  buildObjectScenario("pods", buildPodOnNode({}), [resize, labelSteps]),
  buildObjectScenario("pods", buildPodOnNode({ containers: fc.tuple(buildContainer("c0", guaranteed)) }), [
    resizeGuaranteed,
    labelSteps,
  ]),
  buildObjectScenario("pods", buildPodOnNode({ initContainers }), [
    buildResize(generateFieldEdit("spec.initContainers.0.resources.requests.cpu", cpu)),
    buildResize(generateFieldEdit("spec.initContainers.0.resources.requests.memory", memory)),
    resize,
  ]),
  buildObjectScenario(
    "pods",
    buildPodOnNode({ resources: podLevelResources, initContainers: addSometimes(initContainers) }),
    [
      buildResize(generateFieldEdit("spec.resources.requests.cpu", pickOne("5", "6", "4"))),
      buildResize(generateFieldEdit("spec.resources.limits.memory", pickOne("9Gi", "10Gi"))),
      buildResize(
        generateFieldEdit("spec.resources.requests.cpu", pickOne("5", "6")),
        generateFieldEdit("spec.initContainers.0.resources.requests.cpu", cpu),
      ),
      resize,
    ],
  ),
);

/** Builds a request that binds a pod to a node. It is sent to the pod's subresource or to the resource `bindings`. */
const buildBinding = (sentTo: { subresource: "binding" } | { otherResource: "bindings" }): Arbitrary<SequenceRequest> =>
  fc
    .record({
      options: requestOptions,
      kind: pickOne("Node", "Node", "Node", "", "Pod"),
      name: pickOne("n1", "n2", "old", "windows", "gone"),
      labels: addSometimes(pickOne({ "topology.kubernetes.io/zone": "mine" }, { a: "b" }), "in 1 of 3"),
    })
    .map(({ options, kind, name, labels }) => {
      const metadata = labels && { metadata: { labels } };
      const body = { apiVersion: "v1", kind: "Binding", ...metadata, target: { apiVersion: "v1", kind, name } };
      return { ...options, verb: "create", ...sentTo, body };
    });
const topology = pickOne(
  {},
  { labels: { "topology.kubernetes.io/zone": "mine", "topology.kubernetes.io/rack": "mine" } },
);

const mirror = { "kubernetes.io/config.mirror": "x" };
const referToSecret = (name: string) => ({ secretKeyRef: { name, key: "k" } });
/** Generates environment variables of a container, some from secrets. */
const environment = pickOne<JsonMap>(
  {},
  {},
  { env: [{ name: "A", valueFrom: referToSecret("a") }] },
  { env: [{ name: "B", valueFrom: referToSecret("b") }] },
  { envFrom: [{ secretRef: { name: "b" } }] },
  { envFrom: [{ configMapRef: { name: "b" } }] },
);
const tokenFolder = "/var/run/secrets/kubernetes.io/serviceaccount";
const mounts = pickOne<JsonMap>(
  {},
  {},
  {},
  { volumeMounts: [{ name: "v", mountPath: tokenFolder }] },
  { volumeMounts: [{ name: "v", mountPath: `${tokenFolder}/` }] },
);
const buildContainerWithSecretsAndMounts = (name: string) =>
  fc.tuple(environment, mounts).map(([environment, mounts]) => ({ name, image, ...environment, ...mounts }));
/** Generates volumes, some with a secret. */
const volume = pickOne<JsonMap>(
  { name: "v", emptyDir: {} },
  { name: "v", secret: { secretName: "a" } },
  { name: "v", secret: { secretName: "b" } },
  { name: "v", emptyDir: {} },
  { name: "v", projected: { sources: [{ secret: { name: "b" } }] } },
  { name: "v", projected: { sources: [{ serviceAccountToken: { path: "token" } }] } },
  { name: "v", csi: { driver: "example.com", nodePublishSecretRef: { name: "b" } } },
);
const accountName = pickOne("default", "quiet", "strict", "strict", "lenient", "missing");
/** Generates pods with a ServiceAccount and with fields that the plugin ServiceAccount checks. */
const podWithServiceAccount = buildPod(
  generateObjects({
    containers: fc.oneof(
      fc.tuple(buildContainerWithSecretsAndMounts("c0")),
      fc.tuple(buildContainerWithSecretsAndMounts("c0"), buildContainerWithSecretsAndMounts("c1")),
    ),
    initContainers: addSometimes(fc.tuple(buildContainerWithSecretsAndMounts("i0")), "in 1 of 3"),
    volumes: fc
      .tuple(volume, pickOne<JsonMap[]>([], [], [{ name: "kube-api-access-mine", emptyDir: {} }]))
      .map(([volume, otherVolumes]) => [volume, ...otherVolumes]),
    serviceAccountName: addSometimes(accountName, "in 3 of 4"),
    serviceAccount: addSometimes(pickOne("quiet"), "in 1 of 10"),
    automountServiceAccountToken: addSometimes(fc.boolean(), "in 1 of 3"),
    imagePullSecrets: addSometimes(pickOne([{ name: "pull" }], [{ name: "pull" }, { name: "b" }]), "in 1 of 3"),
    nodeName: addSometimes(pickOne("n1")),
  }),
  generateObjects({ annotations: addSometimes(pickOne(mirror), "in 1 of 5") }),
);
const debug = buildEditStep(
  environment.map((environment) => [
    { path: ["spec", "ephemeralContainers"], value: [{ name: "e0", image, ...environment }] },
  ]),
  "ephemeralcontainers",
);

/** Generates pods with a priority class, or with fields that contradict it. */
const prioritisedPod = buildPod(
  generateObjects({
    priorityClassName: addSometimes(
      pickOne("high", "polite", "usual", "unusual", "system-cluster-critical", "missing"),
      "in 3 of 4",
    ),
    priority: addSometimes(pickOne(1000, 100, 500, 0, 5), "in 1 of 3"),
    preemptionPolicy: addSometimes(pickOne("Never", "PreemptLowerPriority"), "in 1 of 3"),
  }),
);

/** Generates pods with a RuntimeClass, or with fields that contradict it. */
const classedPod = buildPod(
  generateObjects({
    runtimeClassName: addSometimes(pickOne(...generatorRuntimeClassNames, "missing"), "in 5 of 6"),
    overhead: addSometimes(
      pickOne({ cpu: "250m", memory: "64Mi" }, { cpu: "0.25", memory: "65536Ki" }, { cpu: "1" }),
      "in 1 of 4",
    ),
    nodeSelector: addSometimes(pickOne({ env: "prod" }, { env: "test" }, { a: "b", c: "d" })),
    tolerations: addSometimes(generators.tolerations),
  }),
);

/** Generates node selectors, some of which contradict the selector in a namespace's annotation. */
const selectors = pickOne<JsonMap>(
  {},
  { env: "prod" },
  { env: "test" },
  { tier: "a", x: "y" },
  { disk: "ssd" },
  { pool: "default" },
  { pool: "other" },
);
const selectingPod = buildPod(generateObjects({ nodeSelector: addSometimes(selectors, "in 4 of 5") }));

/** Generates tolerations, some of which a namespace's annotations don't allow. */
const toleration = pickOne<JsonMap>(
  { key: "dedicated", operator: "Exists" },
  { key: "tier", operator: "Equal", value: "a", effect: "NoSchedule" },
  { key: "tier", operator: "Equal", value: "b", effect: "NoSchedule" },
  { key: "tier", value: "a", effect: "NoSchedule" },
  { key: "example.com/gpu", operator: "Exists", effect: "NoSchedule" },
  { key: "a", operator: "Exists" },
  { operator: "Exists" },
  { key: "node.kubernetes.io/not-ready", operator: "Exists", effect: "NoExecute", tolerationSeconds: 5 },
  { key: "node.kubernetes.io/not-ready", operator: "Exists", effect: "NoExecute" },
);
const toleratingPod = buildPod(
  generateObjects({
    containers: fc.tuple(buildContainer("c0")),
    tolerations: addSometimes(buildList(toleration, 3), "in 4 of 5"),
  }),
);

/** Generates PersistentVolumeClaims, some of which name their class by the older annotation. */
const claim = fc
  .record({
    storage: pickOne("1Gi", "1Gi", "2Gi", "1e9", "512Mi", "6Gi"),
    storageClassName: pickOne("fast", "slow", "standard", "", "missing", undefined),
    betaClass: addSometimes(pickOne("fast", "slow"), "in 1 of 7"),
  })
  .map(({ storage, storageClassName, betaClass }) => ({
    apiVersion: "v1",
    kind: "PersistentVolumeClaim",
    metadata: betaClass === undefined ? {} : { annotations: { "volume.beta.kubernetes.io/storage-class": betaClass } },
    spec: {
      accessModes: ["ReadWriteOnce"],
      resources: { requests: { storage } },
      ...(storageClassName !== undefined && { storageClassName }),
    },
  }));
const bind = buildEditStep(
  generateEditLists(
    generateFieldEdit("status.phase", pickOne("Bound", "Bound", "Lost")),
    generateFieldEdit("status.capacity.storage", pickOne("1Gi", "2Gi")),
  ),
  "status",
);
const grow = buildEditStep(
  wrapInList(
    generateFieldEdit("spec.resources.requests.storage", pickOne("2Gi", "3Gi", "5Gi", "7Gi", "1Gi", "512Mi", "1.5Gi")),
  ),
);

/** Generates owner references, some of them to unknown kinds. */
const owner = fc
  .record({
    kind: pickOne(
      ["apps/v1", "Deployment"],
      ["v1", "Node"],
      ["v1", "ConfigMap"],
      ["v1", "Pod"],
      ["foo.example.com/v1", "Nope"],
      ["v1", "Nope"],
      ["a/b/c", "Pod"],
    ),
    name: pickOne("n1", "a"),
    uid: pickOne("1", "2"),
    controller: addSometimes(pickOne(false), "in 1 of 3"),
    blockOwnerDeletion: addSometimes(fc.boolean(), "in 4 of 5"),
  })
  .map(({ kind: [apiVersion, kind], blockOwnerDeletion, controller, ...rest }) => ({
    apiVersion,
    kind,
    ...rest,
    ...(controller !== undefined && { controller }),
    ...(blockOwnerDeletion !== undefined && { blockOwnerDeletion }),
  }));
const owners = fc.uniqueArray(owner, { maxLength: 2, selector: ({ uid }) => uid });
/** Generates the user of a request. admin has all rights, and the others only some or none. */
const tenant = pickOne<RequestUser>("jane", "jane", "system:node:n1", "admin");
const assignUsers = (user: Arbitrary<RequestUser>, sequence: Arbitrary<RequestSequence>): Arbitrary<RequestSequence> =>
  fc.tuple(sequence, fc.array(user, { minLength: 6, maxLength: 6 })).map(([sequence, users]) => {
    return {
      ...sequence,
      steps: sequence.steps.map((step, index) => ({ ...step, user: users[index % users.length] ?? step.user })),
    };
  });
/** Builds sequences about an object with owners, whose owners are then changed by users with different rights. */
const buildOwnedScenario = (kind: GeneratedKind): Arbitrary<RequestSequence> => {
  const body = fc.tuple(generators.buildObject(kind), addSometimes(owners, "in 3 of 4")).map(([body, found]) => {
    return { ...body, metadata: { ...Object(body.metadata), ...(found && { ownerReferences: found }) } };
  });
  const changeOwners = buildEditStep(
    wrapInList(generateFieldEdit("metadata.ownerReferences", fc.oneof(owners, owners, pickOne(undefined)))),
  );
  const changeByStatus = buildEditStep(wrapInList(generateFieldEdit("metadata.ownerReferences", owners)), "status");
  return assignUsers(
    tenant,
    buildObjectScenario(kind, body, [
      changeOwners,
      changeOwners,
      labelSteps,
      ...(generators.subresources[kind].status ? [changeByStatus] : []),
    ]),
  );
};

/** The image backend admits a pod with this annotation, whatever its images are. */
export const breakGlassAnnotation = "ticket.image-policy.k8s.io/break-glass";
/** Generates names of images. The backend answers by the name, in part with invalid answers. */
const checkedImage = pickOne(
  "app",
  "app:1",
  "app:1",
  "app:latest",
  "example.com:5000/app:2",
  "fpga:1",
  `app@sha256:${"0af9".repeat(16)}`,
);
/** Generates pods about whose images the backend is asked. */
const podWithCheckedImages = buildPod(
  generateObjects({
    containers: checkedImage.map((image) => [{ name: "c0", image }]),
    initContainers: addSometimes(
      checkedImage.map((image) => [{ name: "i0", image }]),
      "in 1 of 3",
    ),
  }),
  generateObjects({
    annotations: addSometimes(
      pickOne({ [breakGlassAnnotation]: "yes" }, { "example.com/image-policy.k8s.io": "no" }),
      "in 1 of 5",
    ),
  }),
);

const parallelism = buildEditStep(wrapInList(generateFieldEdit("spec.parallelism", pickOne(1, 2, 3, 0))));
const suspend = buildEditStep(wrapInList(generateFieldEdit("spec.suspend", fc.boolean())));
/** Generates Jobs whose pods belong to a pod group. */
const groupedJob = fc
  .record({
    podGroupName: addSometimes(pickOne("gang", "loose", "missing"), "in 3 of 4"),
    parallelism: addSometimes(pickOne(1, 2)),
  })
  .map(({ podGroupName, parallelism }) => {
    const containers = [{ name: "a", image }];
    const spec = { restartPolicy: "Never", containers, ...(podGroupName && { schedulingGroup: { podGroupName } }) };
    return {
      apiVersion: "batch/v1",
      kind: "Job",
      metadata: {},
      spec: { ...(parallelism && { parallelism }), template: { spec } },
    };
  });

const moveToGroups = (sequence: Arbitrary<RequestSequence>) =>
  sequence.map((one) => ({ ...one, namespace: "grouped" }));

/** All scenarios by name. plugins.yaml states which of them the comparison of a plugin uses. */
export const scenarioGenerators = {
  /** Pods with resources near the limits of their namespace. */
  resources: buildObjectScenario("pods", podNearLimits, [resize, labelSteps]),
  /** Pods that are bound to different nodes, and whose containers' resources are then changed. */
  resizes: resizeScenarios,
  /** The scenario of pods that a request for their subresource `binding` binds to a node. */
  bindings: buildObjectScenario("pods", buildPod(pickOne({}), topology), [
    buildBinding({ subresource: "binding" }),
    buildBinding({ subresource: "binding" }),
    buildBinding({ otherResource: "bindings" }),
    labelSteps,
  ]),
  /** The scenario of pods that are created with a `spec.nodeName`. */
  placements: buildObjectScenario(
    "pods",
    buildPod(
      generateObjects({ nodeName: addSometimes(pickOne("n1", "n2", "old", "windows", "gone"), "in 4 of 5") }),
      topology,
    ),
    [labelSteps],
  ),
  accounts: buildObjectScenario("pods", podWithServiceAccount, [debug, labelSteps]),
  /** Pods without secrets that get ephemeral containers with secrets. */
  debugging: buildObjectScenario(
    "pods",
    buildPod(generateObjects({ serviceAccountName: pickOne("strict", "strict", "lenient", undefined) })),
    [debug, debug, labelSteps],
  ),
  priorities: buildObjectScenario("pods", prioritisedPod, [
    buildEditStep(wrapInList(generateFieldEdit("spec.priority", pickOne(undefined, 5)))),
    buildEditStep(
      generateEditLists(
        generateFieldEdit("spec.priority", pickOne(undefined)),
        generateFieldEdit("spec.preemptionPolicy", pickOne(undefined)),
      ),
    ),
    labelSteps,
  ]),
  priorityClasses: fc.oneof(
    buildObjectScenario("priorityclasses", generators.buildObject("priorityclasses"), [
      buildEditStep(wrapInList(generateFieldEdit("globalDefault", pickOne(true, false)))),
    ]),
    ...["usual", "unusual", "high"].map((name) =>
      buildDryRunScenario(
        "priorityclasses",
        [name],
        [buildEditStep(wrapInList(generateFieldEdit("globalDefault", pickOne(true, false)))), labelSteps],
      ),
    ),
  ),
  runtimeClasses: buildObjectScenario("pods", classedPod, [labelSteps]),
  /**
   * Pods with a RuntimeClass that adds tolerations. They are not updated, because plugin and rule add tolerations in
   * different orders.
   */
  tolerantClasses: buildObjectScenario(
    "pods",
    fc.tuple(generators.buildObject("pods"), pickOne("sandboxed", "impatient")).map(([body, runtimeClassName]) => {
      return { ...body, spec: { ...Object(body.spec), runtimeClassName } };
    }),
    [],
  ),
  images: buildObjectScenario("pods", podWithCheckedImages, [
    labelSteps,
    buildEditStep(wrapInList(generateFieldEdit("spec.containers.0.image", checkedImage))),
    buildEditStep(
      checkedImage.map((image) => [{ path: ["spec", "ephemeralContainers"], value: [{ name: "e0", image }] }]),
      "ephemeralcontainers",
    ),
  ]),
  selectors: buildObjectScenario("pods", selectingPod, [labelSteps]),
  tolerations: buildObjectScenario("pods", toleratingPod, [
    buildEditStep(wrapInList(generateFieldEdit("spec.tolerations.-", toleration))),
    labelSteps,
  ]),
  claims: buildObjectScenario("persistentvolumeclaims", claim, [bind, grow, grow, labelSteps]),
  growth: fc.oneof(
    ...["bound-fast", "bound-slow", "bound-to-none", "bound-to-missing", "bound-as-before", "lost"].map((name) =>
      buildDryRunScenario("persistentvolumeclaims", [name], [grow, grow, labelSteps]),
    ),
    buildDryRunScenario("persistentvolumeclaims", ["bound-within"], [grow, labelSteps], "limited"),
  ),
  owners: fc.oneof(
    ...(["configmaps", "services", "pods", "deployments", "persistentvolumes", "persistentvolumeclaims"] as const).map(
      buildOwnedScenario,
    ),
  ),
  jobs: moveToGroups(buildObjectScenario("jobs", groupedJob, [parallelism, parallelism, suspend, labelSteps])),
  groupedJobs: moveToGroups(
    fc.oneof(
      ...["alone", "ganged", "loose", "lonely", "leader", "gentle"].map((name) =>
        buildDryRunScenario("jobs", [name], [parallelism, parallelism, suspend, labelSteps]),
      ),
    ),
  ),
  podGroups: moveToGroups(buildObjectScenario("podgroups", generators.buildObject("podgroups"), [labelSteps])),
  /** Requests about existing namespaces. Some, such as kube-system, must not be deleted; others may be deleted. */
  namespaces: fc.oneof(
    ...["default", "kube-system", "kube-public", "kube-node-lease", "accounted", "ending"].map((name) =>
      buildDryRunScenario("namespaces", [name], [deletionStep, labelSteps]),
    ),
  ),
  accessReviews: buildObjectScenario(
    "localsubjectaccessreviews",
    generators.buildObject("localsubjectaccessreviews"),
    [],
  ),
  ...certificateScenarios,
  ...eventRateLimitScenarios,
  ...nodeScenarios,
  ...podSecurityScenarios,
  ...quotaScenarios,
  ...mutatingPolicyScenarios,
  ...validatingPolicyScenarios,
} satisfies Record<string, Arbitrary<RequestSequence>>;

export type ScenarioName = keyof typeof scenarioGenerators;
