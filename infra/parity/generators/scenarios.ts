import fc, { type Arbitrary } from "fast-check";
import type { JsonMap } from "#lib/json.ts";
import { certificateScenes } from "./certificates.ts";
import { eventScenes } from "./events.ts";
import { nodeScenes } from "./nodes.ts";
import { podSecurityScenes } from "./pod-security.ts";
import {
  asked,
  at,
  type Edit,
  type Kind,
  list,
  maybe,
  one,
  type Sequence,
  type Step,
  type User,
  whole,
} from "./steps.ts";
import { alone, creation, deletion, edit, label, story as storyOf, together, trial } from "./stories.ts";
import { runtimeClassNames } from "./surroundings.ts";
import { vocabulary } from "./vocabulary.ts";

// Sequences with a plan: mostly valid, and about what a plugin looks at.

const words = vocabulary(false);

/** An object is created with this body, changed in some of these ways, and deleted. */
const story = (kind: Kind, body: Arbitrary<JsonMap>, changes: Arbitrary<Step>[]) =>
  storyOf(kind, creation(body), changes);

const image = "registry.example.com/app:1";
const pod = (spec: Arbitrary<JsonMap>, metadata: Arbitrary<JsonMap> = one({})): Arbitrary<JsonMap> =>
  fc.tuple(spec, metadata).map(([spec, metadata]) => {
    return { apiVersion: "v1", kind: "Pod", metadata, spec: { containers: [{ name: "c0", image }], ...spec } };
  });

const cpu = one("100m", "200m", "0.5", "1", "1.500", "2", "4");
const memory = one("32Mi", "64Mi", "64.5Mi", "1Gi", "1e9", "3Gi");
const amounts = whole({ cpu: maybe(cpu, 2), memory: maybe(memory, 2) });
/** What is left of the limits is not below the requests. */
const within = fc.oneof(
  whole({ requests: amounts }),
  whole({ limits: amounts }),
  whole({ requests: amounts, limits: one({ cpu: "8", memory: "8Gi" }, { cpu: "2", memory: "3Gi" }) }),
  fc.tuple(cpu, memory).map(([cpu, memory]) => ({ requests: { cpu, memory }, limits: { cpu, memory } })),
  one({}),
);
const container = (name: string, resources: Arbitrary<unknown> = within) =>
  whole({ name: one(name), image: one(image), resources: maybe(resources, 3) });

const limited = pod(
  whole({
    containers: fc.oneof(fc.tuple(container("c0")), fc.tuple(container("c0"), container("c1"))),
    initContainers: maybe(
      fc.tuple(container("i0"), one({}, { restartPolicy: "Always" })).map(([one, more]) => [{ ...one, ...more }]),
      1,
      2,
    ),
    resources: maybe(one({ requests: { cpu: "3", memory: "4Gi" } }, { limits: { cpu: "4" } }), 1, 6),
  }),
  whole({ annotations: maybe(one({ "kubernetes.io/limit-ranger": "mine" }), 1, 5) }),
);

/** With room to grow and to shrink; a resize may change neither how good the service is nor which resources are named. */
const burstable = fc.tuple(cpu, memory).map(([cpu, memory]) => ({ requests: { cpu, memory } }));
const usual = { resources: { requests: { cpu: "1", memory: "1Gi" } } };
/** On nodes of all sorts; with more, they have to be resizable elsewhere than in their only container. */
const placed = (more: Record<string, Arbitrary<unknown>>) =>
  pod(
    whole({
      containers: fc.tuple(container("c0", burstable).map((one) => ({ ...usual, ...one }))),
      nodeName: maybe(one("n1", "n2", "old", "small", "bare", "windows", "gone"), 6),
      overhead: maybe(one({ cpu: "250m" }), 1, 9),
      ...more,
    }),
  );
const resizeBy = (...edits: Arbitrary<Edit>[]) => edit(together(...edits), "resize");
const resize = fc.oneof(
  resizeBy(at("spec.containers.0.resources.requests.cpu", cpu)),
  resizeBy(
    at("spec.containers.0.resources.requests.memory", memory),
    at("spec.containers.0.resources.requests.cpu", cpu),
  ),
);
const first = fc
  .tuple(container("i0", burstable), one({}, {}, { restartPolicy: "Always" }))
  .map(([one, more]) => [{ ...usual, ...one, ...more }]);
const shared = one({ requests: { cpu: "4", memory: "4Gi" }, limits: { cpu: "8", memory: "8Gi" } });
const resized = fc.oneof(
  story("pods", placed({}), [resize, label]),
  story("pods", placed({ initContainers: first }), [
    resizeBy(at("spec.initContainers.0.resources.requests.cpu", cpu)),
    resizeBy(at("spec.initContainers.0.resources.requests.memory", memory)),
    resize,
  ]),
  story("pods", placed({ resources: shared, initContainers: maybe(first) }), [
    resizeBy(at("spec.resources.requests.cpu", one("5", "6", "4"))),
    resizeBy(at("spec.resources.limits.memory", one("9Gi", "10Gi"))),
    resizeBy(at("spec.resources.requests.cpu", one("5", "6")), at("spec.initContainers.0.resources.requests.cpu", cpu)),
    resize,
  ]),
);

const binding = (into: boolean): Arbitrary<Step> =>
  fc
    .record({
      asked,
      kind: one("Node", "Node", "Node", "", "Pod"),
      name: one("n1", "n2", "old", "windows", "gone"),
      labels: maybe(one({ "topology.kubernetes.io/zone": "mine" }, { a: "b" }), 1, 2),
    })
    .map(({ asked, kind, name, labels }) => {
      const metadata = labels && { metadata: { labels } };
      const body = { apiVersion: "v1", kind: "Binding", ...metadata, target: { apiVersion: "v1", kind, name } };
      return { ...asked, verb: "create", ...(into ? { into: "bindings" } : { subresource: "binding" }), body };
    });
const topology = one({}, { labels: { "topology.kubernetes.io/zone": "mine", "topology.kubernetes.io/rack": "mine" } });

const mirror = { "kubernetes.io/config.mirror": "x" };
const secretOf = (name: string) => ({ secretKeyRef: { name, key: "k" } });
const environment = one<JsonMap>(
  ...[{}, {}, { env: [{ name: "A", valueFrom: secretOf("a") }] }, { env: [{ name: "B", valueFrom: secretOf("b") }] }],
  ...[{ envFrom: [{ secretRef: { name: "b" } }] }, { envFrom: [{ configMapRef: { name: "b" } }] }],
);
const mounted = "/var/run/secrets/kubernetes.io/serviceaccount";
const mounts = one<JsonMap>(
  {},
  {},
  {},
  { volumeMounts: [{ name: "v", mountPath: mounted }] },
  { volumeMounts: [{ name: "v", mountPath: `${mounted}/` }] },
);
const accountedContainer = (name: string) =>
  fc.tuple(environment, mounts).map(([environment, mounts]) => ({ name, image, ...environment, ...mounts }));
const volume = one<JsonMap>(
  ...[
    { name: "v", emptyDir: {} },
    { name: "v", secret: { secretName: "a" } },
    { name: "v", secret: { secretName: "b" } },
  ],
  ...[
    { name: "v", emptyDir: {} },
    { name: "v", projected: { sources: [{ secret: { name: "b" } }] } },
  ],
  { name: "v", projected: { sources: [{ serviceAccountToken: { path: "token" } }] } },
  { name: "v", csi: { driver: "example.com", nodePublishSecretRef: { name: "b" } } },
);
const accountedPod = pod(
  whole({
    containers: fc.oneof(
      fc.tuple(accountedContainer("c0")),
      fc.tuple(accountedContainer("c0"), accountedContainer("c1")),
    ),
    initContainers: maybe(fc.tuple(accountedContainer("i0")), 1, 2),
    volumes: fc
      .tuple(volume, one<JsonMap[]>([], [], [{ name: "kube-api-access-mine", emptyDir: {} }]))
      .map(([first, more]) => [first, ...more]),
    serviceAccountName: maybe(one("default", "quiet", "strict", "strict", "lenient", "missing"), 3),
    serviceAccount: maybe(one("quiet"), 1, 9),
    automountServiceAccountToken: maybe(fc.boolean(), 1, 2),
    imagePullSecrets: maybe(one([{ name: "pull" }], [{ name: "pull" }, { name: "b" }]), 1, 2),
    nodeName: maybe(one("n1")),
  }),
  whole({ annotations: maybe(one(mirror), 1, 4) }),
);
const debug = edit(
  environment.map((environment) => [
    { path: ["spec", "ephemeralContainers"], value: [{ name: "e0", image, ...environment }] },
  ]),
  "ephemeralcontainers",
);

const prioritisedPod = pod(
  whole({
    priorityClassName: maybe(one("high", "polite", "usual", "unusual", "system-cluster-critical", "missing"), 3),
    priority: maybe(one(1000, 100, 500, 0, 5), 1, 2),
    preemptionPolicy: maybe(one("Never", "PreemptLowerPriority"), 1, 2),
  }),
);

const classedPod = pod(
  whole({
    runtimeClassName: maybe(one(...runtimeClassNames, "missing"), 5),
    overhead: maybe(one({ cpu: "250m", memory: "64Mi" }, { cpu: "0.25", memory: "65536Ki" }, { cpu: "1" }), 1, 3),
    nodeSelector: maybe(one({ env: "prod" }, { env: "test" }, { a: "b", c: "d" })),
    tolerations: maybe(words.tolerations),
  }),
);

const selectors = one<JsonMap>(
  {},
  { env: "prod" },
  { env: "test" },
  { tier: "a", x: "y" },
  { disk: "ssd" },
  { pool: "default" },
  { pool: "other" },
);
const selectingPod = pod(whole({ nodeSelector: maybe(selectors, 4) }));

const toleration = one<JsonMap>(
  ...[
    { key: "dedicated", operator: "Exists" },
    { key: "tier", operator: "Equal", value: "a", effect: "NoSchedule" },
  ],
  ...[
    { key: "tier", operator: "Equal", value: "b", effect: "NoSchedule" },
    { key: "tier", value: "a", effect: "NoSchedule" },
  ],
  ...[
    { key: "example.com/gpu", operator: "Exists", effect: "NoSchedule" },
    { key: "a", operator: "Exists" },
  ],
  ...[
    { operator: "Exists" },
    { key: "node.kubernetes.io/not-ready", operator: "Exists", effect: "NoExecute", tolerationSeconds: 5 },
  ],
  ...[{ key: "node.kubernetes.io/not-ready", operator: "Exists", effect: "NoExecute" }],
);
const toleratingPod = pod(whole({ containers: fc.tuple(container("c0")), tolerations: maybe(list(toleration, 3), 4) }));

const claim = fc
  .record({
    storage: one("1Gi", "1Gi", "2Gi", "1e9", "512Mi", "6Gi"),
    storageClassName: one("fast", "slow", "standard", "", "missing", undefined),
    older: maybe(one("fast", "slow"), 1, 6),
  })
  .map(({ storage, storageClassName, older }) => ({
    apiVersion: "v1",
    kind: "PersistentVolumeClaim",
    metadata: older === undefined ? {} : { annotations: { "volume.beta.kubernetes.io/storage-class": older } },
    spec: {
      accessModes: ["ReadWriteOnce"],
      resources: { requests: { storage } },
      ...(storageClassName !== undefined && { storageClassName }),
    },
  }));
const bind = edit(
  together(at("status.phase", one("Bound", "Bound", "Lost")), at("status.capacity.storage", one("1Gi", "2Gi"))),
  "status",
);
const grow = edit(
  alone(at("spec.resources.requests.storage", one("2Gi", "3Gi", "5Gi", "7Gi", "1Gi", "512Mi", "1.5Gi"))),
);

const owner = fc
  .record({
    kind: one(
      ...[
        ["apps/v1", "Deployment"],
        ["v1", "Node"],
        ["v1", "ConfigMap"],
        ["v1", "Pod"],
      ],
      ...[
        ["foo.example.com/v1", "Nope"],
        ["v1", "Nope"],
        ["a/b/c", "Pod"],
      ],
    ),
    name: one("n1", "a"),
    uid: one("1", "2"),
    controller: maybe(one(false), 1, 2),
    blockOwnerDeletion: maybe(fc.boolean(), 4),
  })
  .map(({ kind: [apiVersion, kind], blockOwnerDeletion, controller, ...rest }) => ({
    apiVersion,
    kind,
    ...rest,
    ...(controller !== undefined && { controller }),
    ...(blockOwnerDeletion !== undefined && { blockOwnerDeletion }),
  }));
const owners = fc.uniqueArray(owner, { maxLength: 2, selector: ({ uid }) => uid });
/** Users with all, some and none of the rights. */
const tenant = one<User>("jane", "jane", "system:node:n1", "admin");
const byTenants = (user: Arbitrary<User>, sequence: Arbitrary<Sequence>): Arbitrary<Sequence> =>
  fc.tuple(sequence, fc.array(user, { minLength: 6, maxLength: 6 })).map(([sequence, users]) => {
    return {
      ...sequence,
      steps: sequence.steps.map((step, index) => ({ ...step, user: users[index % users.length] ?? step.user })),
    };
  });
const owned = (kind: Kind): Arbitrary<Sequence> => {
  const body = fc.tuple(words.objectOf(kind), maybe(owners, 3)).map(([body, ownerReferences]) => {
    return { ...body, metadata: { ...Object(body.metadata), ...(ownerReferences && { ownerReferences }) } };
  });
  const change = edit(alone(at("metadata.ownerReferences", fc.oneof(owners, owners, one(undefined)))));
  const ofStatus = edit(alone(at("metadata.ownerReferences", owners)), "status");
  return byTenants(
    tenant,
    story(kind, body, [change, change, label, ...(words.subresources[kind].status ? [ofStatus] : [])]),
  );
};

/** The image backend admits a pod with this annotation, whatever its images are. */
export const breakGlass = "ticket.image-policy.k8s.io/break-glass";
const judgedImage = one(
  "app",
  "app:1",
  "app:1",
  "app:latest",
  "example.com:5000/app:2",
  "fpga:1",
  `app@sha256:${"0af9".repeat(16)}`,
);
const judgedPod = pod(
  whole({
    containers: judgedImage.map((image) => [{ name: "c0", image }]),
    initContainers: maybe(
      judgedImage.map((image) => [{ name: "i0", image }]),
      1,
      2,
    ),
  }),
  whole({ annotations: maybe(one({ [breakGlass]: "yes" }, { "example.com/image-policy.k8s.io": "no" }), 1, 4) }),
);

const parallelism = edit(alone(at("spec.parallelism", one(1, 2, 3, 0))));
const suspend = edit(alone(at("spec.suspend", fc.boolean())));
const groupedJob = fc
  .record({ podGroupName: maybe(one("gang", "loose", "missing"), 3), parallelism: maybe(one(1, 2)) })
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

const inGroups = (sequence: Arbitrary<Sequence>) => sequence.map((one) => ({ ...one, namespace: "grouped" }));

export const scenarios = {
  /** Pods with resources near the limits of their namespace. */
  resources: story("pods", limited, [resize, label]),
  /** Pods on nodes of all sorts, as they get other resources. */
  resizes: resized,
  /** Pods that come to a node. */
  bindings: story("pods", pod(one({}), topology), [binding(false), binding(false), binding(true), label]),
  /** Pods that name their node themselves. */
  placements: story("pods", pod(whole({ nodeName: maybe(one("n1", "n2", "old", "windows", "gone"), 4) }), topology), [
    label,
  ]),
  accounts: story("pods", accountedPod, [debug, label]),
  /** Pods whose containers name no secrets, and that get some that do. */
  debugging: story("pods", pod(whole({ serviceAccountName: one("strict", "strict", "lenient", undefined) })), [
    debug,
    debug,
    label,
  ]),
  priorities: story("pods", prioritisedPod, [
    edit(alone(at("spec.priority", one(undefined, 5)))),
    edit(together(at("spec.priority", one(undefined)), at("spec.preemptionPolicy", one(undefined)))),
    label,
  ]),
  priorityClasses: fc.oneof(
    story("priorityclasses", words.objectOf("priorityclasses"), [edit(alone(at("globalDefault", one(true, false))))]),
    ...["usual", "unusual", "high"].map((name) =>
      trial("priorityclasses", [name], [edit(alone(at("globalDefault", one(true, false)))), label]),
    ),
  ),
  runtimeClasses: story("pods", classedPod, [label]),
  /** They are not changed: each answer would differ by the order in which they tolerate. */
  tolerantClasses: story(
    "pods",
    fc.tuple(words.objectOf("pods"), one("sandboxed", "impatient")).map(([body, runtimeClassName]) => {
      return { ...body, spec: { ...Object(body.spec), runtimeClassName } };
    }),
    [],
  ),
  images: story("pods", judgedPod, [
    label,
    edit(alone(at("spec.containers.0.image", judgedImage))),
    edit(
      judgedImage.map((image) => [{ path: ["spec", "ephemeralContainers"], value: [{ name: "e0", image }] }]),
      "ephemeralcontainers",
    ),
  ]),
  selectors: story("pods", selectingPod, [label]),
  tolerations: story("pods", toleratingPod, [edit(alone(at("spec.tolerations.-", toleration))), label]),
  claims: story("persistentvolumeclaims", claim, [bind, grow, grow, label]),
  growth: fc.oneof(
    ...["bound-fast", "bound-slow", "bound-to-none", "bound-to-missing", "bound-as-before", "lost"].map((name) =>
      trial("persistentvolumeclaims", [name], [grow, grow, label]),
    ),
    trial("persistentvolumeclaims", ["bound-within"], [grow, label], "limited"),
  ),
  owners: fc.oneof(
    ...(["configmaps", "services", "pods", "deployments", "persistentvolumes", "persistentvolumeclaims"] as const).map(
      owned,
    ),
  ),
  jobs: inGroups(story("jobs", groupedJob, [parallelism, parallelism, suspend, label])),
  groupedJobs: inGroups(
    fc.oneof(
      ...["alone", "ganged", "loose", "lonely", "leader", "gentle"].map((name) =>
        trial("jobs", [name], [parallelism, parallelism, suspend, label]),
      ),
    ),
  ),
  podGroups: inGroups(story("podgroups", words.objectOf("podgroups"), [label])),
  /** The namespaces that must last, and others. */
  namespaces: fc.oneof(
    ...["default", "kube-system", "kube-public", "kube-node-lease", "accounted", "ending"].map((name) =>
      trial("namespaces", [name], [deletion, label]),
    ),
  ),
  accessReviews: story("localsubjectaccessreviews", words.objectOf("localsubjectaccessreviews"), []),
  ...certificateScenes,
  ...eventScenes,
  ...nodeScenes,
  ...podSecurityScenes,
} satisfies Record<string, Arbitrary<Sequence>>;

export type Scenario = keyof typeof scenarios;
