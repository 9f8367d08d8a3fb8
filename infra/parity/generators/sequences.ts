import fc, { type Arbitrary } from "fast-check";
import type { Json } from "#lib/json.ts";
import type { Match } from "#lib/rule.ts";

/** Who asks. */
export type User = "admin" | "jane" | "system:node:n1";

/** Sets what is at `path`, or takes it away where there is no value; `-` is the end of a list. */
export interface Edit {
  path: (string | number)[];
  value?: unknown;
}

/** One request about a sequence's object; its name is put in when it is sent. */
export type Step = { user: User; dryRun: boolean } /** `into` another collection, where it is not the kind's own. */ & (
  | { verb: "create"; subresource?: string; into?: string; body: Json }
  /** A PUT of what was read back, with these edits. */
  | { verb: "replace"; subresource?: string; edits: Edit[] }
  | { verb: "patch"; subresource?: string; type: "json" | "merge" | "strategic-merge"; body: unknown }
  | { verb: "apply"; subresource?: string; manager: string; force: boolean; body: Json }
  /** At once, or with the grace that the object has. */
  | { verb: "delete"; graceful: boolean }
  | { verb: "deletecollection" }
  /** Whether the namespace is there. */
  | { verb: "look" }
);

export type Kind = keyof typeof kinds;

/** What only scenes are about: by chance, hardly any of it would be right. */
export const planned = {
  certificatesigningrequests: {
    ...{ apiVersion: "certificates.k8s.io/v1", kind: "CertificateSigningRequest", namespaced: false },
  },
  replicationcontrollers: { apiVersion: "v1", kind: "ReplicationController", namespaced: true },
  podtemplates: { apiVersion: "v1", kind: "PodTemplate", namespaced: true },
  daemonsets: { apiVersion: "apps/v1", kind: "DaemonSet", namespaced: true },
  replicasets: { apiVersion: "apps/v1", kind: "ReplicaSet", namespaced: true },
  cronjobs: { apiVersion: "batch/v1", kind: "CronJob", namespaced: true },
  clustertrustbundles: { apiVersion: "certificates.k8s.io/v1beta1", kind: "ClusterTrustBundle", namespaced: false },
  podcertificaterequests: {
    ...{ apiVersion: "certificates.k8s.io/v1beta1", kind: "PodCertificateRequest", namespaced: true },
  },
  events: { apiVersion: "v1", kind: "Event", namespaced: true },
  leases: { apiVersion: "coordination.k8s.io/v1", kind: "Lease", namespaced: true },
  csinodes: { apiVersion: "storage.k8s.io/v1", kind: "CSINode", namespaced: false },
  resourceslices: { apiVersion: "resource.k8s.io/v1", kind: "ResourceSlice", namespaced: false },
  serviceaccounts: { apiVersion: "v1", kind: "ServiceAccount", namespaced: true },
} as const;

/** Requests about one object, one after the other. */
export interface Sequence {
  kind: Kind | keyof typeof planned;
  /** How its name must begin. */
  prefix?: string;
  /** Where it lives; without one, in a namespace of its own that nobody made. */
  namespace?: string;
  /** An object that stands there already, and is to stand there afterwards: all about it is tried out only. */
  standing?: string;
  /** Whether the API server makes the object's name. */
  generateName: boolean;
  steps: Step[];
}

/** What can be generated, and where the API server serves it. */
export const kinds = {
  pods: { apiVersion: "v1", kind: "Pod", namespaced: true },
  services: { apiVersion: "v1", kind: "Service", namespaced: true },
  configmaps: { apiVersion: "v1", kind: "ConfigMap", namespaced: true },
  persistentvolumeclaims: { apiVersion: "v1", kind: "PersistentVolumeClaim", namespaced: true },
  persistentvolumes: { apiVersion: "v1", kind: "PersistentVolume", namespaced: false },
  nodes: { apiVersion: "v1", kind: "Node", namespaced: false },
  volumeattributesclasses: { apiVersion: "storage.k8s.io/v1", kind: "VolumeAttributesClass", namespaced: false },
  deployments: { apiVersion: "apps/v1", kind: "Deployment", namespaced: true },
  statefulsets: { apiVersion: "apps/v1", kind: "StatefulSet", namespaced: true },
  ingresses: { apiVersion: "networking.k8s.io/v1", kind: "Ingress", namespaced: true },
  jobs: { apiVersion: "batch/v1", kind: "Job", namespaced: true },
  namespaces: { apiVersion: "v1", kind: "Namespace", namespaced: false },
  priorityclasses: { apiVersion: "scheduling.k8s.io/v1", kind: "PriorityClass", namespaced: false },
  podgroups: { apiVersion: "scheduling.k8s.io/v1alpha2", kind: "PodGroup", namespaced: true },
  localsubjectaccessreviews: {
    ...{ apiVersion: "authorization.k8s.io/v1", kind: "LocalSubjectAccessReview", namespaced: true },
  },
} as const;

/** Not served by every API server, or never kept. */
const special: readonly Kind[] = ["podgroups", "localsubjectaccessreviews"];
const every = (Object.keys(kinds) as Kind[]).filter((kind) => !special.includes(kind));

/** Pods with this annotation are spoiled by another webhook, after all rules. */
export const spoil = "parity.postern.dev/never-pull";

/** Present and absent in this proportion. */
export const maybe = <T>(arbitrary: Arbitrary<T>, present = 1, absent = 1): Arbitrary<T | undefined> =>
  fc.oneof(
    { withCrossShrink: true },
    { weight: absent, arbitrary: fc.constant(undefined) },
    { weight: present, arbitrary },
  );
export const one = <T>(...values: T[]) => fc.constantFrom(...values);

/** Members that come and go. */
const some = (members: Record<string, Arbitrary<unknown>>): Arbitrary<Json> =>
  fc.record(members, { requiredKeys: [] }).map(defined);
export const whole = (members: Record<string, Arbitrary<unknown>>): Arbitrary<Json> => fc.record(members).map(defined);
const defined = (fields: object): Json =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
const rarely = (members: Record<string, Arbitrary<unknown>>): Record<string, Arbitrary<unknown>> =>
  Object.fromEntries(Object.entries(members).map(([name, arbitrary]) => [name, maybe(arbitrary, 1, 4)]));
export const list = <T>(arbitrary: Arbitrary<T>, maxLength = 2) => fc.array(arbitrary, { maxLength });

export const at = (path: string, value: Arbitrary<unknown>): Arbitrary<Edit> =>
  value.map((value) => ({
    path: path.split(".").map((part) => (/^\d+$/.test(part) ? Number(part) : part)),
    ...(value !== undefined && { value }),
  }));
const stored: readonly Kind[] = ["persistentvolumes", "persistentvolumeclaims", "volumeattributesclasses"];

/** Of a workload's pods, which are replaced for ever. */
const lasting = ({ restartPolicy: _, activeDeadlineSeconds: __, ...spec }: Json): Json => spec;

/** A pod has so many parts that if each were wrong now and then, hardly any would be right: one where nothing is, one where much is. */
export const vocabulary = (odd: boolean) => {
  const mostly = <T, U>(valid: Arbitrary<T>, invalid: Arbitrary<U>): Arbitrary<T | U> =>
    odd ? fc.oneof({ weight: 14, arbitrary: valid }, { weight: 1, arbitrary: invalid }) : valid;
  const ifOdd = <T>(arbitraries: T[]): T[] => (odd ? arbitraries : []);

  const labels = fc.dictionary(one("app", "tier", "example.com/team"), one("a", "b", ""), { maxKeys: 2 });
  const annotations = fc.oneof(
    { weight: 9, arbitrary: fc.dictionary(one("note", "example.com/note"), one("a", ""), { maxKeys: 1 }) },
    { weight: 1, arbitrary: fc.constant({ [spoil]: "yes" }) },
  );

  const image = mostly(
    one(
      ...["app", "app:1", "app:latest", "registry.example.com/app:1", "registry.example.com:5000/team/app:2"],
      `registry.example.com/app@sha256:${"0af9".repeat(16)}`,
    ),
    one("", " app", "UPPER/App:1"),
  );
  const pullPolicy = mostly(one("Always", "IfNotPresent", "Never"), one("", "Sometimes"));

  const quantity = mostly(one("1", "2", "0", "4k"), one("-1", "one", "1.5", "1e3", "0.0001", "", "1Ki"));
  const ordinary = {
    cpu: one("1", "100m", "0.5", "1e-1", "1.500"),
    memory: one("1Gi", "128Mi", "1e9", "1G", "64.5Mi"),
    "ephemeral-storage": one("1Gi"),
  };
  const extended = Object.fromEntries(
    ["example.com/gpu", "example.com/GPU_2.x", "b.example.com/fpga", "a/b"].map((name) => [name, quantity]),
  );
  const unusual = Object.fromEntries(
    [
      ...["kubernetes.io/batch", "requests.example.com/x", "requests.kubernetes.io/x", "x.kubernetes.io/y"],
      ...[
        "hugepages-2Mi",
        "nodomain",
        "Example.com/gpu",
        "example.com/-x",
        `example.com/${"x".repeat(64)}`,
        "a.b.c/d/e",
      ],
    ].map((name) => [name, quantity]),
  );
  const resources = fc.oneof(
    { weight: 3, arbitrary: some({ requests: some(ordinary) }) },
    // Of an extended resource the request is the limit.
    { weight: 3, arbitrary: whole({ limits: some({ ...rarely(ordinary), ...rarely(extended) }) }) },
    { weight: 2, arbitrary: some(rarely(extended)).map((amounts) => ({ limits: amounts, requests: amounts })) },
    ...ifOdd([
      some({ requests: some(rarely({ ...extended, ...unusual })) }),
      some({ limits: some(rarely({ ...ordinary, ...unusual })) }),
    ]).map((arbitrary) => ({ weight: 1, arbitrary })),
  );

  const probe = fc
    .tuple(
      mostly(
        one<Json>(
          ...[{ httpGet: { path: "/", port: 80 } }, { tcpSocket: { port: 80 } }, { exec: { command: ["true"] } }],
          ...[{ grpc: { port: 80 } }, { httpGet: { port: "named" } }],
        ),
        fc.constant({}),
      ),
      some({ periodSeconds: mostly(one(1, 10), one(-1)), failureThreshold: one(1, 3) }),
    )
    .map(([handler, numbers]) => ({ ...handler, ...numbers }));

  const securityContext = mostly(
    one<Json>(
      ...[
        {},
        { privileged: true },
        { runAsUser: 0, allowPrivilegeEscalation: true },
        { runAsUser: 1000, runAsNonRoot: true },
      ],
      ...[
        { capabilities: { drop: ["ALL"] }, allowPrivilegeEscalation: false },
        { capabilities: { add: ["NET_ADMIN"] } },
        { seLinuxOptions: { level: "s0:c1,c2" } },
        { seLinuxOptions: {}, readOnlyRootFilesystem: true, runAsGroup: 0 },
      ],
      { seccompProfile: { type: "RuntimeDefault" } },
    ),
    one<Json>(
      { runAsUser: -1 },
      { privileged: true, allowPrivilegeEscalation: false },
      { seccompProfile: { type: "Localhost" } },
    ),
  );

  const podSecurityContext = mostly(
    one<Json>(
      ...[{}, { runAsUser: 1 }, { runAsUser: 0, runAsGroup: 0 }, { fsGroup: 1, fsGroupChangePolicy: "Always" }],
      ...[{ supplementalGroups: [] }, { supplementalGroups: [1, 2] }, { seLinuxOptions: { user: "u" } }],
      ...[{ runAsNonRoot: true }, { sysctls: [{ name: "kernel.shm_rmid_forced", value: "0" }] }],
    ),
    one<Json>({ fsGroup: -1 }, { supplementalGroups: [-1] }, { sysctls: [{ name: "A B", value: "" }] }),
  );

  const containerOf = (name: string): Arbitrary<Json> =>
    whole({
      name: mostly(fc.constant(name), one("Bad_Name", "c0")),
      image: mostly(image, fc.constant(undefined)),
      imagePullPolicy: maybe(pullPolicy, 3),
      ...rarely({
        resources,
        livenessProbe: probe,
        readinessProbe: probe,
        startupProbe: probe,
        lifecycle: one({ preStop: { exec: { command: ["true"] } } }, { postStart: { sleep: { seconds: 1 } } }, {}),
        securityContext,
        resizePolicy: one([{ resourceName: "cpu", restartPolicy: "NotRequired" }], []),
        env: list(whole({ name: one("A", "B"), value: one("x", "") })),
        ports: list(whole({ containerPort: mostly(one(80, 443), one(0)), protocol: maybe(one("UDP")) })),
      }),
    });
  /** The names go by the place: `c0`, `c1`. */
  const containers = (letter: string, minLength: number, maxLength: number): Arbitrary<Json[]> =>
    fc.oneof(
      { withCrossShrink: true },
      ...Array.from({ length: maxLength - minLength + 1 }, (_, extra) => ({
        weight: maxLength - extra,
        arbitrary: fc.tuple(
          ...Array.from({ length: minLength + extra }, (_, index) => containerOf(`${letter}${index}`)),
        ) as Arbitrary<Json[]>,
      })),
    );
  const initContainers = fc
    .tuple(containers("i", 1, 2), one(undefined, undefined, "Always"))
    .map(([found, restartPolicy]) => {
      // Only those that run on may be probed.
      const ofRunning = ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resizePolicy"];
      const unprobed = restartPolicy || odd ? {} : Object.fromEntries(ofRunning.map((member) => [member, undefined]));
      return found.map((one) => defined({ ...one, ...unprobed, restartPolicy }));
    });
  const ephemeralContainer = fc.tuple(one("e0", "e1"), image, maybe(pullPolicy, 3));
  const ephemeralContainers = list(
    ephemeralContainer.map(([name, image, imagePullPolicy]) => defined({ name, image, imagePullPolicy })),
  );

  const volumes = list(
    fc
      .tuple(
        mostly(fc.constant(undefined), fc.constant("v0")),
        mostly(
          fc.oneof(
            whole({ image: whole({ reference: image, pullPolicy: maybe(pullPolicy, 3) }) }),
            one<Json>(
              { emptyDir: {} },
              { configMap: { name: "a" } },
              { secret: { secretName: "a" } },
              { projected: {} },
              { hostPath: { path: "/" } },
              { persistentVolumeClaim: { claimName: "a" } },
              { downwardAPI: { items: [{ path: "a", fieldRef: { fieldPath: "metadata.name" } }] } },
              { csi: { driver: "example.com" } },
            ),
          ),
          fc.constant({ emptyDir: {}, hostPath: { path: "/" } }),
        ),
      )
      .map(([name, source]) => ({ name, ...source })),
  ).map((found) => found.map(({ name, ...source }, index) => ({ name: name ?? `v${index}`, ...source })));

  const topologyKey = mostly(
    one("kubernetes.io/hostname", "kubernetes.io/hostname", "topology.kubernetes.io/zone", "rack"),
    one("", "not valid/", "Kubernetes.io/hostname"),
  );
  const term = whole({
    topologyKey,
    labelSelector: one<unknown>({ matchLabels: { app: "a" } }, {}, undefined),
    namespaces: maybe(one(["default"])),
  });
  const preferred = whole({ weight: mostly(one(1, 100), one(0)), podAffinityTerm: term });
  const podTerms = some({
    requiredDuringSchedulingIgnoredDuringExecution: list(term, 3),
    preferredDuringSchedulingIgnoredDuringExecution: list(preferred, 2),
  });
  const affinity = some({
    podAntiAffinity: podTerms,
    podAffinity: podTerms,
    nodeAffinity: one({
      requiredDuringSchedulingIgnoredDuringExecution: {
        nodeSelectorTerms: [{ matchExpressions: [{ key: "a", operator: "Exists" }] }],
      },
    }),
  });

  const lost = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
  const toleration = fc.oneof(
    {
      weight: 6,
      arbitrary: whole({
        key: one(...lost, "example.com/gpu", "b.example.com/fpga", "dedicated"),
        operator: fc.constant("Exists"),
        effect: one(undefined, "NoExecute", "NoSchedule", "PreferNoSchedule"),
      }),
    },
    { weight: 2, arbitrary: one<Json>({ operator: "Exists" }, { operator: "Exists", effect: "NoExecute" }) },
    {
      weight: 3,
      arbitrary: whole({
        key: one(...lost, "example.com/gpu"),
        operator: one("Exists", "Equal").map((operator) => operator),
        effect: fc.constant("NoExecute"),
        tolerationSeconds: one(undefined, 0, 5, 300, -1),
      }),
    },
    {
      weight: 2,
      arbitrary: whole({
        key: one(...lost, "example.com/gpu"),
        operator: one(undefined, "Equal"),
        value: one(undefined, "", "x"),
        effect: one(undefined, "NoExecute", "NoSchedule"),
      }),
    },
    ...ifOdd([
      some({
        key: one("", "example.com/gpu", "not valid"),
        operator: one("", "Exists", "Lt", "In"),
        value: one("", "x", "5"),
        effect: one("", "NoSchedule", "NoExecute", "Never"),
        tolerationSeconds: one(0, 5),
      }),
    ]).map((arbitrary) => ({ weight: 3, arbitrary })),
  );
  const tolerations = list(toleration, 3);

  const podSpec: Arbitrary<Json> = fc
    .tuple(
      whole({
        containers: mostly(containers("c", 1, 3), fc.constant([])),
        ...{ initContainers: maybe(initContainers), volumes: maybe(volumes) },
        ...{ affinity: maybe(affinity, 2), tolerations: maybe(tolerations, 2) },
        ...rarely({
          nodeSelector: one({ a: "b" }),
          activeDeadlineSeconds: mostly(one(100), one(0)),
          terminationGracePeriodSeconds: one(0, 5),
          restartPolicy: mostly(one("Always", "Never", "OnFailure"), one("Maybe")),
          priorityClassName: mostly(one("system-node-critical", undefined), one("none-such")),
          runtimeClassName: mostly(fc.constant(undefined), one("none-such")),
          hostNetwork: mostly(fc.constant(undefined), one(true)),
          securityContext: podSecurityContext,
          resources: one<Json | undefined>({ limits: { cpu: "64" } }, {}, undefined, undefined),
          automountServiceAccountToken: fc.boolean(),
          topologySpreadConstraints: one([{ maxSkew: 1, topologyKey: "zone", whenUnsatisfiable: "DoNotSchedule" }]),
        }),
        ephemeralContainers: mostly(fc.constant(undefined), ephemeralContainers),
      }),
      // A pod that waits at a gate is on no node.
      one<Json>({}, {}, {}, { nodeName: "n1" }, { schedulingGates: [{ name: "example.com/gate" }] }),
    )
    .map(([spec, place]) => ({ ...spec, ...place }));

  const ip = mostly(one("192.0.2.1", "192.0.2.2", "2001:db8::1"), one("127.0.0.1", "", "host", "192.0.2.1"));
  const externalIPs = fc.array(ip, { maxLength: 3 });
  const serviceSpec = whole({
    ports: mostly(
      one(
        [{ port: 80 }],
        [{ port: 53, protocol: "UDP" }],
        [
          { port: 80, name: "a" },
          { port: 443, name: "b" },
        ],
      ),
      one([], [{ port: 0 }]),
    ),
    externalIPs: maybe(externalIPs, 2),
    ...rarely({
      selector: labels,
      clusterIP: one("None"),
      sessionAffinity: mostly(one("ClientIP", "None"), one("Else")),
      type: mostly(one("ClusterIP", "NodePort", "LoadBalancer", "ExternalName"), one("Odd")),
      externalName: one("a.example.com"),
      internalTrafficPolicy: one("Local"),
      publishNotReadyAddresses: fc.boolean(),
      ipFamilyPolicy: one("SingleStack", "PreferDualStack"),
    }),
  });

  const protections = ["pv", "pvc", "vac"].map((short) => `kubernetes.io/${short}-protection`);
  const finalizers = fc.uniqueArray(mostly(one("example.com/keep", ...protections), one("keep", "not valid/")), {
    maxLength: 3,
  });

  const taints = list(
    whole({
      key: mostly(one("node.kubernetes.io/not-ready", "dedicated"), one("", "not valid")),
      value: one(undefined, "", "x"),
      effect: mostly(one("NoSchedule", "NoExecute", "PreferNoSchedule"), one("Never")),
    }),
    3,
  );

  /** What a Deployment and a StatefulSet have in common, and what only one of them has. */
  const workload = (members: Record<string, Arbitrary<unknown>>) =>
    fc
      .tuple(labels, podSpec, mostly(one(0, 1, 3, undefined), one(-1)), whole(members))
      .map(([labels, spec, replicas, own]): Json => {
        const together = { app: "a", ...labels };
        const template = { metadata: { labels: together }, spec: odd ? spec : lasting(spec) };
        return { spec: defined({ replicas, selector: { matchLabels: together }, template, ...own }) };
      });

  const storage = one("1Gi", "2Gi", "1e9", "0.5Gi");
  const specs: Record<Kind, Arbitrary<Json>> = {
    pods: whole({ spec: podSpec }),
    services: whole({ spec: serviceSpec }),
    configmaps: some({
      data: fc.dictionary(mostly(one("a", "b"), one("a b")), one("x", ""), { maxKeys: 2 }),
      immutable: fc.boolean(),
    }),
    persistentvolumeclaims: whole({
      spec: whole({
        accessModes: mostly(one(["ReadWriteOnce"], ["ReadOnlyMany"]), one([], ["Never"])),
        resources: storage.map((storage) => ({ requests: { storage } })),
        ...rarely({
          storageClassName: one("fast", ""),
          volumeMode: one("Block"),
          volumeName: one("v"),
          selector: one({ matchLabels: { a: "b" } }, {}),
          dataSource: one({ kind: "PersistentVolumeClaim", name: "other" }),
          volumeAttributesClassName: one("gold"),
        }),
      }),
    }),
    persistentvolumes: whole({
      spec: whole({
        capacity: mostly(
          storage.map((storage) => ({ storage })),
          fc.constant({}),
        ),
        accessModes: mostly(fc.constant(["ReadWriteOnce"]), fc.constant([])),
        hostPath: mostly(fc.constant({ path: "/x" }), fc.constant(undefined)),
        ...rarely({
          persistentVolumeReclaimPolicy: one("Delete", "Retain"),
          storageClassName: one("fast"),
          volumeMode: one("Block", "Filesystem"),
          claimRef: one({ name: "a", namespace: "default" }),
          mountOptions: one(["ro"], []),
        }),
      }),
    }),
    nodes: some({
      spec: some({ taints, unschedulable: fc.boolean(), podCIDR: mostly(one("10.1.0.0/24"), one("x")) }),
      status: some({ capacity: one({ cpu: "1" }), conditions: one([{ type: "Ready", status: "True" }]) }),
    }),
    volumeattributesclasses: whole({
      driverName: mostly(one("example.com"), one("", "Not Valid")),
      parameters: mostly(one({ a: "b" }), one({}, undefined)),
    }),
    deployments: workload({ strategy: maybe(one({ type: "Recreate" }, {}), 1, 4) }),
    statefulsets: workload({
      serviceName: mostly(one("a"), one("", undefined)),
      podManagementPolicy: maybe(mostly(one("Parallel"), one("Odd")), 1, 4),
    }),
    ingresses: whole({
      spec: whole({
        defaultBackend: mostly(one({ service: { name: "a", port: { number: 80 } } }), one(undefined, {})),
        ingressClassName: maybe(mostly(one("web", "inner", "missing"), one("", "not valid")), 1, 3),
      }),
    }),
    jobs: whole({
      spec: fc
        .tuple(podSpec, one(undefined, 1, 3), mostly(one(undefined, 4), one(-1)), one(undefined, true))
        .map(([spec, parallelism, completions, suspend]) => {
          const template = { spec: { ...lasting(spec), restartPolicy: "Never" } };
          return defined({ parallelism, completions, suspend, template });
        }),
    }),
    namespaces: some({ spec: one({ finalizers: ["kubernetes"] }, { finalizers: ["example.com/keep"] }, {}) }),
    priorityclasses: whole({
      value: mostly(one(0, 5, 1000, -1), one(2_000_000_000, undefined)),
      globalDefault: maybe(fc.boolean()),
      preemptionPolicy: maybe(mostly(one("Never", "PreemptLowerPriority"), one("Sometimes"))),
    }),
    podgroups: whole({
      spec: whole({
        schedulingPolicy: mostly(one<Json>({ basic: {} }, { gang: { minCount: 2 } }), one({}, { gang: {}, basic: {} })),
        podGroupTemplateRef: maybe(
          fc
            .tuple(one("work", "work", "ended-work", "missing"), one("workers", "workers", "driver", "nobody"))
            .map(([workloadName, podGroupTemplateName]) => ({ workload: { workloadName, podGroupTemplateName } })),
          4,
        ),
      }),
    }),
    localsubjectaccessreviews: whole({
      spec: whole({ user: one("jane"), resourceAttributes: one({ verb: "get", resource: "pods" }) }),
    }),
  };

  /** How a class was named before there was a field for it. */
  const older: Partial<Record<Kind, Arbitrary<Json | undefined>>> = {
    ingresses: maybe(one({ "kubernetes.io/ingress.class": "web" }, { "kubernetes.io/ingress.class": "" }), 1, 4),
    persistentvolumeclaims: maybe(one({ "volume.beta.kubernetes.io/storage-class": "slow" }), 1, 8),
  };
  const metadata = whole({
    labels: maybe(labels),
    annotations: maybe(annotations),
    finalizers: maybe(finalizers, 1, 3),
  });
  const storageMetadata = whole({
    labels: maybe(labels),
    annotations: maybe(annotations),
    finalizers: maybe(finalizers, 2),
  });

  const objectOf = (kind: Kind): Arbitrary<Json> =>
    fc
      .tuple(stored.includes(kind) ? storageMetadata : metadata, specs[kind], older[kind] ?? one(undefined))
      .map(([metadata, rest, more]) => {
        const annotations = more && { annotations: { ...Object(metadata.annotations), ...more } };
        return {
          apiVersion: kinds[kind].apiVersion,
          kind: kinds[kind].kind,
          metadata: { ...metadata, ...annotations },
          ...rest,
        };
      });

  const common = [
    at("metadata.labels", labels),
    at("metadata.annotations", annotations),
    at("metadata.finalizers", maybe(finalizers, 3)),
  ];

  const ofTemplate = [
    at("spec.replicas", one(0, 2, undefined)),
    at("spec.template.spec.containers.0.image", image),
    at("spec.template.spec.tolerations", tolerations),
  ];
  const edits: Record<Kind, Arbitrary<Edit>[]> = {
    pods: [
      ...["containers.0", "containers.0", "containers.1", "initContainers.0"].map((place) =>
        at(`spec.${place}.image`, image),
      ),
      ...[at("spec.tolerations.-", toleration), at("spec.tolerations.-", toleration)],
      at("spec.activeDeadlineSeconds", mostly(one(1, 50), one(1000, undefined))),
      at("spec.schedulingGates", mostly(fc.constant([]), fc.constant(undefined))),
      ...ifOdd([
        at("spec.containers.0.imagePullPolicy", pullPolicy),
        at("spec.tolerations", maybe(tolerations)),
        at("spec.tolerations.0.tolerationSeconds", one(1, undefined)),
        at("spec.affinity", affinity),
        at("spec.nodeSelector", one({ a: "b" }, { a: "b", c: "d" })),
        at("spec.volumes.0.image.pullPolicy", pullPolicy),
        at("spec.ephemeralContainers", ephemeralContainers),
      ]),
    ],
    services: [
      at("spec.externalIPs", maybe(externalIPs, 3)),
      at("spec.externalIPs", externalIPs),
      at("spec.externalIPs.-", ip),
      at("spec.externalIPs.0", ip),
      at("spec.type", one("ClusterIP", "LoadBalancer", "ExternalName")),
      at("spec.ports", one([{ port: 81 }])),
    ],
    configmaps: [at("data", one(undefined, { a: "y" })), at("data.a", one("z", undefined))],
    persistentvolumeclaims: [at("spec.resources.requests.storage", storage), at("spec.volumeName", one("other"))],
    persistentvolumes: [at("spec.capacity.storage", storage), at("spec.hostPath.path", one("/y"))],
    nodes: [
      at("spec.taints", maybe(taints, 3)),
      at(
        "spec.taints.-",
        taints.map(([first]) => first ?? { key: "x", effect: "NoSchedule" }),
      ),
      at("spec.unschedulable", one(true, undefined)),
      at("spec.providerID", one("a")),
    ],
    volumeattributesclasses: [at("parameters", one({ a: "c" })), at("driverName", one("b.example.com"))],
    deployments: [...ofTemplate, at("spec.paused", one(true))],
    statefulsets: [...ofTemplate, at("spec.serviceName", one("b"))],
    ingresses: [
      at("spec.ingressClassName", one("web", "inner", undefined)),
      at("spec.tls", one([{ hosts: ["a.example.com"] }])),
    ],
    jobs: [
      at("spec.parallelism", mostly(one(0, 1, 2, 5), one(-1))),
      at("spec.parallelism", one(3, undefined)),
      at("spec.suspend", fc.boolean()),
    ],
    namespaces: [at("spec.finalizers", one([], ["kubernetes"]))],
    priorityclasses: [
      at("globalDefault", one(true, true, false, undefined)),
      at("description", one("a", undefined)),
      at("value", one(7)),
    ],
    podgroups: [at("spec.schedulingPolicy", one({ basic: {} }))],
    localsubjectaccessreviews: [at("spec.user", one("admin"))],
  };

  const ofWorkload = {
    scale: at("spec.replicas", mostly(one(0, 1, 5), one(-1))),
    status: at("status.replicas", mostly(one(1), one(-1))),
  };
  /** What each subresource is changed by; a scale is an object of its own, with the same paths. */
  const subresources: Record<Kind, Record<string, Arbitrary<Edit>>> = {
    pods: {
      ephemeralcontainers: fc.oneof(
        at("spec.ephemeralContainers", ephemeralContainers),
        at(
          "spec.ephemeralContainers.-",
          ephemeralContainers.map(([first]) => first ?? { name: "e2", image: "debug" }),
        ),
        at("spec.containers.0.image", image),
      ),
      status: fc.oneof(
        at("status.phase", mostly(one("Running", "Succeeded"), one("Odd"))),
        at("status.message", one("a")),
        at("spec.containers.0.image", image),
      ),
      resize: fc.oneof(
        at("spec.containers.0.resources", resources),
        at("spec.containers.0.resources.requests.cpu", one("2", "100m")),
        at("spec.containers.0.image", image),
      ),
    },
    services: { status: at("status.loadBalancer", one({ ingress: [{ ip: "192.0.2.7" }] }, {})) },
    configmaps: {},
    persistentvolumeclaims: { status: at("status.phase", one("Bound", "Lost")) },
    persistentvolumes: { status: at("status.phase", one("Available", "Released")) },
    nodes: {
      status: fc.oneof(at("status.capacity", one({ cpu: "2" })), at("spec.taints", taints)),
    },
    volumeattributesclasses: {},
    deployments: ofWorkload,
    statefulsets: ofWorkload,
    ingresses: { status: at("status.loadBalancer", one({ ingress: [{ ip: "192.0.2.7" }] }, {})) },
    jobs: { status: at("status.active", one(1, 2)) },
    namespaces: { status: at("status.phase", mostly(one("Active"), one("Odd"))) },
    priorityclasses: {},
    podgroups: {},
    localsubjectaccessreviews: {},
  };

  return { objectOf, edits, common, subresources, tolerations };
};

export type Vocabulary = ReturnType<typeof vocabulary>;

/** As a JSON patch, or as one that is merged; there a list's first members are meant by their names. */
export const asPatch = (type: "json" | "merge" | "strategic-merge", edits: Edit[]): unknown => {
  if (type === "json")
    return edits.map(({ path, ...edit }) => {
      const pointer = path.map((part) => `/${String(part).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");
      if (!("value" in edit)) return { op: "remove", path: pointer };
      return { op: typeof path.at(-1) === "number" ? "replace" : "add", path: pointer, value: edit.value };
    });
  return merged(edits);
};

const merged = (edits: Edit[]): Json => edits.reduce<Json>((whole, edit) => deepMerge(whole, nested(edit)), {});

const named: Record<string, string> = { containers: "c", initContainers: "i", volumes: "v" };

const nested = ({ path: [first, ...rest], value = null }: Edit): Json => {
  if (first === undefined) return {};
  if (rest.length === 0) return { [first]: value };
  const [index, ...deeper] = rest;
  if (index === "-") return { [first]: [value] };
  if (typeof index !== "number") return { [first]: nested({ path: rest, value }) };
  const letter = named[String(first)];
  const member = deeper.length > 0 ? nested({ path: deeper, value }) : value;
  return { [first]: [letter ? { name: `${letter}${index}`, ...Object(member) } : member] };
};

const deepMerge = (one: Json, other: Json): Json => {
  const merged = { ...one };
  for (const [key, value] of Object.entries(other)) {
    const before = merged[key];
    merged[key] = isFields(before) && isFields(value) ? deepMerge(before, value) : value;
  }
  return merged;
};

const isFields = (value: unknown): value is Json =>
  typeof value === "object" && value !== null && !Array.isArray(value);

type Asked = { user: User; dryRun: boolean };
export const asked: Arbitrary<Asked> = fc.record({
  user: fc.oneof(
    { weight: 4, arbitrary: one<User>("admin") },
    { weight: 1, arbitrary: one<User>("jane", "system:node:n1") },
  ),
  dryRun: fc.oneof({ weight: 11, arbitrary: one(false) }, { weight: 1, arbitrary: one(true) }),
});

export const patchType = one("json" as const, "merge" as const, "strategic-merge" as const);

const changeOf = (kind: Kind, words: Vocabulary): Arbitrary<Step> => {
  const { common, edits, objectOf, subresources } = words;
  const edit = fc.oneof(
    ...common.map((arbitrary) => ({ weight: 1, arbitrary })),
    ...edits[kind].map((arbitrary) => ({ weight: 2, arbitrary })),
  );
  const several = fc.array(edit, { minLength: 1, maxLength: 2 });
  const subs = Object.entries(subresources[kind]);
  return fc.oneof(
    {
      weight: 4,
      arbitrary: fc.tuple(asked, several).map(([asked, edits]): Step => ({ ...asked, verb: "replace", edits })),
    },
    {
      weight: 5,
      arbitrary: fc
        .tuple(asked, patchType, several)
        .map(([asked, type, edits]): Step => ({ ...asked, verb: "patch", type, body: asPatch(type, edits) })),
    },
    {
      weight: 1,
      arbitrary: fc.tuple(asked, objectOf(kind)).map(([asked, body]): Step => ({ ...asked, verb: "create", body })),
    },
    { weight: 2, arbitrary: applyOf(kind, words) },
    { weight: 1, arbitrary: applyOf(kind, words, several.map(merged)) },
    // What has finalizers or a grace stays, and can be changed.
    {
      weight: 1,
      arbitrary: fc
        .tuple(asked, fc.boolean())
        .map(([asked, graceful]): Step => ({ ...asked, verb: "delete", graceful })),
    },
    ...subs.flatMap(([subresource, edit]) => [
      {
        weight: 1,
        arbitrary: fc.tuple(asked, edit).map(([asked, edit]): Step => {
          return { ...asked, verb: "replace", subresource, edits: [edit] };
        }),
      },
      {
        weight: 1,
        arbitrary: fc.tuple(asked, patchType, edit).map(([asked, type, edit]): Step => {
          return { ...asked, verb: "patch", subresource, type, body: asPatch(type, [edit]) };
        }),
      },
      // A scale is of another kind, and nobody applies one.
      ...(subresource === "scale"
        ? []
        : [
            {
              weight: 1,
              arbitrary: applyOf(
                kind,
                words,
                edit.map((edit) => merged([edit])),
              ).map((step) => ({ ...step, subresource })),
            },
          ]),
    ]),
    ...(kind === "pods" ? [{ weight: 1, arbitrary: binding }] : []),
  );
};

const binding: Arbitrary<Step> = fc.tuple(asked, fc.boolean()).map(([asked, evicts]): Step => {
  return evicts
    ? { ...asked, verb: "create", subresource: "eviction", body: { apiVersion: "policy/v1", kind: "Eviction" } }
    : {
        ...asked,
        verb: "create",
        subresource: "binding",
        body: { apiVersion: "v1", kind: "Binding", target: { apiVersion: "v1", kind: "Node", name: "n1" } },
      };
});

/** All of an object, or a part of it, as those do who manage one field together. */
const applyOf = (kind: Kind, { objectOf }: Vocabulary, part?: Arbitrary<Json>): Arbitrary<Step> => {
  const { apiVersion, kind: name } = kinds[kind];
  const body = part ? part.map((fields) => ({ apiVersion, kind: name, ...fields })) : objectOf(kind);
  return fc
    .tuple(asked, body, one("one", "other"), fc.boolean())
    .map(([asked, body, manager, force]): Step => ({ ...asked, verb: "apply", manager, force, body }));
};

export const lastStep: Arbitrary<Step> = fc
  .record({
    user: one<User>("admin", "admin", "jane"),
    dryRun: one(false, false, false, true),
    all: one(false, false, false, true),
    graceful: one(false, false, false, true),
  })
  .map(({ all, graceful, ...asked }) =>
    all ? { ...asked, verb: "deletecollection" } : { ...asked, verb: "delete", graceful },
  );

const sequenceOf = (kind: Kind, words: Vocabulary): Arbitrary<Sequence> =>
  fc
    .record({
      generateName: fc.oneof({ weight: 7, arbitrary: one(false) }, { weight: 1, arbitrary: one(true) }),
      first: fc.oneof(
        {
          weight: 7,
          arbitrary: fc
            .tuple(asked, words.objectOf(kind))
            .map(([asked, body]): Step => ({ ...asked, verb: "create", body })),
        },
        { weight: 1, arbitrary: applyOf(kind, words) },
      ),
      changes: fc.array(changeOf(kind, words), { maxLength: 4 }),
      last: lastStep,
    })
    .map(({ generateName, first, changes, last }): Sequence => {
      return { kind, namespace: "default", generateName, steps: [first, ...changes, last] };
    });

/** What to ask about beside what a rule matches, and where. */
export interface Topics {
  /** Namespaces beside `default`, each as often as it is named; undefined is one of the sequence's own. */
  homes?: readonly (string | undefined)[];
  /** Sequences with a plan, where chance alone would seldom come to the point. */
  scenes?: readonly Arbitrary<Sequence>[];
}

/** Requests for a rule: mostly about what it matches, and some about everything else. */
export const sequencesFor = (
  matches: readonly Match[],
  { homes = [], scenes = [] }: Topics = {},
): Arbitrary<Sequence> => {
  const resources = matches.flatMap(({ resources }) => resources.map((path) => path.split("/")[0]));
  const isMatched = (kind: Kind) => resources.includes(kind) || (resources.includes("*") && every.includes(kind));
  const matched = (Object.keys(kinds) as Kind[]).filter(isMatched);
  const [sound, odd] = [vocabulary(false), vocabulary(true)];
  const about = (kinds: Kind[], words: Vocabulary) => fc.oneof(...kinds.map((kind) => sequenceOf(kind, words)));
  const concerned = matched.length > 0 ? matched : every;
  const sequences = fc.oneof(
    { weight: 12, arbitrary: about(concerned, sound) },
    { weight: 4, arbitrary: about(concerned, odd) },
    { weight: 2, arbitrary: about(every, sound) },
    ...scenes.map((arbitrary) => ({ weight: Math.ceil(16 / scenes.length), arbitrary })),
  );
  return homes.length === 0
    ? sequences
    : fc.tuple(sequences, one("default", "default", ...homes)).map(([sequence, home]) => moved(sequence, home));
};

/** The same elsewhere, unless that has its place. In the end somebody looks whether its namespace is there. */
const moved = (sequence: Sequence, namespace: string | undefined): Sequence => {
  const { standing, kind } = sequence;
  if (standing !== undefined || sequence.namespace !== "default" || !{ ...kinds, ...planned }[kind].namespaced)
    return sequence;
  if (namespace !== undefined) return { ...sequence, namespace };
  const { namespace: _, ...homeless } = sequence;
  return { ...homeless, steps: [...sequence.steps, { user: "admin", dryRun: false, verb: "look" }] };
};
