import fc, { type Arbitrary } from "fast-check";
import type { JsonMap } from "#lib/json.ts";
import {
  buildList,
  buildPartial,
  buildWhole,
  deleteUndefined,
  editAt,
  type FieldEdit,
  type GeneratedKind,
  generatedKinds,
  makeOptional,
  makeRare,
  neverPullAnnotation,
  pick,
} from "./steps.ts";

// Generates objects of all kinds, and their edits.

/** Chooses how often generated objects have invalid parts: often if `odd`, else hardly ever. */
interface Odds {
  odd: boolean;
  mostly<T, U>(valid: Arbitrary<T>, invalid: Arbitrary<U>): Arbitrary<T | U>;
  ifOdd<T>(arbitraries: T[]): T[];
}

const stored: readonly GeneratedKind[] = ["persistentvolumes", "persistentvolumeclaims", "volumeattributesclasses"];

/** Drops the fields that a workload's pod template must not have, because its pods are always replaced. */
const deleteRunOnceFields = ({ restartPolicy: _, activeDeadlineSeconds: __, ...spec }: JsonMap): JsonMap => spec;

const labels = fc.dictionary(pick("app", "tier", "example.com/team"), pick("a", "b", ""), { maxKeys: 2 });
const annotations = fc.oneof(
  { weight: 9, arbitrary: fc.dictionary(pick("note", "example.com/note"), pick("a", ""), { maxKeys: 1 }) },
  { weight: 1, arbitrary: fc.constant({ [neverPullAnnotation]: "yes" }) },
);

const buildImages = ({ mostly }: Odds) => {
  const image = mostly(
    pick(
      ...["app", "app:1", "app:latest", "registry.example.com/app:1", "registry.example.com:5000/team/app:2"],
      `registry.example.com/app@sha256:${"0af9".repeat(16)}`,
    ),
    pick("", " app", "UPPER/App:1"),
  );
  const pullPolicy = mostly(pick("Always", "IfNotPresent", "Never"), pick("", "Sometimes"));
  return { image, pullPolicy };
};

const buildResources = ({ mostly, ifOdd }: Odds) => {
  const quantity = mostly(pick("1", "2", "0", "4k"), pick("-1", "one", "1.5", "1e3", "0.0001", "", "1Ki"));
  const ordinary = {
    cpu: pick("1", "100m", "0.5", "1e-1", "1.500"),
    memory: pick("1Gi", "128Mi", "1e9", "1G", "64.5Mi"),
    "ephemeral-storage": pick("1Gi"),
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
  return fc.oneof(
    { weight: 3, arbitrary: buildPartial({ requests: buildPartial(ordinary) }) },
    // The request of an extended resource must equal its limit.
    { weight: 3, arbitrary: buildWhole({ limits: buildPartial({ ...makeRare(ordinary), ...makeRare(extended) }) }) },
    {
      weight: 2,
      arbitrary: buildPartial(makeRare(extended)).map((amounts) => ({ limits: amounts, requests: amounts })),
    },
    ...ifOdd([
      buildPartial({ requests: buildPartial(makeRare({ ...extended, ...unusual })) }),
      buildPartial({ limits: buildPartial(makeRare({ ...ordinary, ...unusual })) }),
    ]).map((arbitrary) => ({ weight: 1, arbitrary })),
  );
};

const buildProbe = ({ mostly }: Odds) =>
  fc
    .tuple(
      mostly(
        pick<JsonMap>(
          ...[{ httpGet: { path: "/", port: 80 } }, { tcpSocket: { port: 80 } }, { exec: { command: ["true"] } }],
          ...[{ grpc: { port: 80 } }, { httpGet: { port: "named" } }],
        ),
        fc.constant({}),
      ),
      buildPartial({ periodSeconds: mostly(pick(1, 10), pick(-1)), failureThreshold: pick(1, 3) }),
    )
    .map(([handler, numbers]) => ({ ...handler, ...numbers }));

const buildSecurityContexts = ({ mostly }: Odds) => {
  const securityContext = mostly(
    pick<JsonMap>(
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
    pick<JsonMap>(
      { runAsUser: -1 },
      { privileged: true, allowPrivilegeEscalation: false },
      { seccompProfile: { type: "Localhost" } },
    ),
  );

  const podSecurityContext = mostly(
    pick<JsonMap>(
      ...[{}, { runAsUser: 1 }, { runAsUser: 0, runAsGroup: 0 }, { fsGroup: 1, fsGroupChangePolicy: "Always" }],
      ...[{ supplementalGroups: [] }, { supplementalGroups: [1, 2] }, { seLinuxOptions: { user: "u" } }],
      ...[{ runAsNonRoot: true }, { sysctls: [{ name: "kernel.shm_rmid_forced", value: "0" }] }],
    ),
    pick<JsonMap>({ fsGroup: -1 }, { supplementalGroups: [-1] }, { sysctls: [{ name: "A B", value: "" }] }),
  );
  return { securityContext, podSecurityContext };
};

const buildContainers = (odds: Odds) => {
  const { odd, mostly } = odds;
  const { image, pullPolicy } = buildImages(odds);
  const [resources, probe] = [buildResources(odds), buildProbe(odds)];
  const { securityContext } = buildSecurityContexts(odds);
  const buildContainer = (name: string): Arbitrary<JsonMap> =>
    buildWhole({
      name: mostly(fc.constant(name), pick("Bad_Name", "c0")),
      image: mostly(image, fc.constant(undefined)),
      imagePullPolicy: makeOptional(pullPolicy, 3),
      ...makeRare({
        resources,
        livenessProbe: probe,
        readinessProbe: probe,
        startupProbe: probe,
        lifecycle: pick({ preStop: { exec: { command: ["true"] } } }, { postStart: { sleep: { seconds: 1 } } }, {}),
        securityContext,
        resizePolicy: pick([{ resourceName: "cpu", restartPolicy: "NotRequired" }], []),
        env: buildList(buildWhole({ name: pick("A", "B"), value: pick("x", "") })),
        ports: buildList(
          buildWhole({ containerPort: mostly(pick(80, 443), pick(0)), protocol: makeOptional(pick("UDP")) }),
        ),
      }),
    });
  /** Names the containers by position: `c0`, `c1`. */
  const buildContainerList = (letter: string, minLength: number, maxLength: number): Arbitrary<JsonMap[]> =>
    fc.oneof(
      { withCrossShrink: true },
      ...Array.from({ length: maxLength - minLength + 1 }, (_, extra) => ({
        weight: maxLength - extra,
        arbitrary: fc.tuple(
          ...Array.from({ length: minLength + extra }, (_, index) => buildContainer(`${letter}${index}`)),
        ) as Arbitrary<JsonMap[]>,
      })),
    );
  const initContainers = fc
    .tuple(buildContainerList("i", 1, 2), pick(undefined, undefined, "Always"))
    .map(([found, restartPolicy]) => {
      // Only init containers that keep running may have probes.
      const ofRunning = ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resizePolicy"];
      const unprobed = restartPolicy || odd ? {} : Object.fromEntries(ofRunning.map((member) => [member, undefined]));
      return found.map((one) => deleteUndefined({ ...one, ...unprobed, restartPolicy }));
    });
  const ephemeralContainer = fc.tuple(pick("e0", "e1"), image, makeOptional(pullPolicy, 3));
  const ephemeralContainers = buildList(
    ephemeralContainer.map(([name, image, imagePullPolicy]) => deleteUndefined({ name, image, imagePullPolicy })),
  );
  return { image, pullPolicy, resources, buildContainerList, initContainers, ephemeralContainers };
};

const buildVolumes = (odds: Odds) => {
  const { mostly } = odds;
  const { image, pullPolicy } = buildImages(odds);
  return buildList(
    fc
      .tuple(
        mostly(fc.constant(undefined), fc.constant("v0")),
        mostly(
          fc.oneof(
            buildWhole({ image: buildWhole({ reference: image, pullPolicy: makeOptional(pullPolicy, 3) }) }),
            pick<JsonMap>(
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
};

const buildAffinity = ({ mostly }: Odds) => {
  const topologyKey = mostly(
    pick("kubernetes.io/hostname", "kubernetes.io/hostname", "topology.kubernetes.io/zone", "rack"),
    pick("", "not valid/", "Kubernetes.io/hostname"),
  );
  const term = buildWhole({
    topologyKey,
    labelSelector: pick<unknown>({ matchLabels: { app: "a" } }, {}, undefined),
    namespaces: makeOptional(pick(["default"])),
  });
  const preferred = buildWhole({ weight: mostly(pick(1, 100), pick(0)), podAffinityTerm: term });
  const podTerms = buildPartial({
    requiredDuringSchedulingIgnoredDuringExecution: buildList(term, 3),
    preferredDuringSchedulingIgnoredDuringExecution: buildList(preferred, 2),
  });
  return buildPartial({
    podAntiAffinity: podTerms,
    podAffinity: podTerms,
    nodeAffinity: pick({
      requiredDuringSchedulingIgnoredDuringExecution: {
        nodeSelectorTerms: [{ matchExpressions: [{ key: "a", operator: "Exists" }] }],
      },
    }),
  });
};

const buildToleration = ({ ifOdd }: Odds) => {
  const lost = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
  return fc.oneof(
    {
      weight: 6,
      arbitrary: buildWhole({
        key: pick(...lost, "example.com/gpu", "b.example.com/fpga", "dedicated"),
        operator: fc.constant("Exists"),
        effect: pick(undefined, "NoExecute", "NoSchedule", "PreferNoSchedule"),
      }),
    },
    { weight: 2, arbitrary: pick<JsonMap>({ operator: "Exists" }, { operator: "Exists", effect: "NoExecute" }) },
    {
      weight: 3,
      arbitrary: buildWhole({
        key: pick(...lost, "example.com/gpu"),
        operator: pick("Exists", "Equal").map((operator) => operator),
        effect: fc.constant("NoExecute"),
        tolerationSeconds: pick(undefined, 0, 5, 300, -1),
      }),
    },
    {
      weight: 2,
      arbitrary: buildWhole({
        key: pick(...lost, "example.com/gpu"),
        operator: pick(undefined, "Equal"),
        value: pick(undefined, "", "x"),
        effect: pick(undefined, "NoExecute", "NoSchedule"),
      }),
    },
    ...ifOdd([
      buildPartial({
        key: pick("", "example.com/gpu", "not valid"),
        operator: pick("", "Exists", "Lt", "In"),
        value: pick("", "x", "5"),
        effect: pick("", "NoSchedule", "NoExecute", "Never"),
        tolerationSeconds: pick(0, 5),
      }),
    ]).map((arbitrary) => ({ weight: 3, arbitrary })),
  );
};

const buildPods = (odds: Odds) => {
  const { mostly } = odds;
  const parts = buildContainers(odds);
  const { buildContainerList, initContainers, ephemeralContainers } = parts;
  const [volumes, affinity, toleration] = [buildVolumes(odds), buildAffinity(odds), buildToleration(odds)];
  const { podSecurityContext } = buildSecurityContexts(odds);
  const tolerations = buildList(toleration, 3);

  const podSpec: Arbitrary<JsonMap> = fc
    .tuple(
      buildWhole({
        containers: mostly(buildContainerList("c", 1, 3), fc.constant([])),
        initContainers: makeOptional(initContainers),
        volumes: makeOptional(volumes),
        affinity: makeOptional(affinity, 2),
        tolerations: makeOptional(tolerations, 2),
        ...makeRare({
          nodeSelector: pick({ a: "b" }),
          activeDeadlineSeconds: mostly(pick(100), pick(0)),
          terminationGracePeriodSeconds: pick(0, 5),
          restartPolicy: mostly(pick("Always", "Never", "OnFailure"), pick("Maybe")),
          priorityClassName: mostly(pick("system-node-critical", undefined), pick("none-such")),
          runtimeClassName: mostly(fc.constant(undefined), pick("none-such")),
          hostNetwork: mostly(fc.constant(undefined), pick(true)),
          securityContext: podSecurityContext,
          resources: pick<JsonMap | undefined>({ limits: { cpu: "64" } }, {}, undefined, undefined),
          automountServiceAccountToken: fc.boolean(),
          topologySpreadConstraints: pick([{ maxSkew: 1, topologyKey: "zone", whenUnsatisfiable: "DoNotSchedule" }]),
        }),
        ephemeralContainers: mostly(fc.constant(undefined), ephemeralContainers),
      }),
      // A pod with a scheduling gate has no node.
      pick<JsonMap>({}, {}, {}, { nodeName: "n1" }, { schedulingGates: [{ name: "example.com/gate" }] }),
    )
    .map(([spec, place]) => ({ ...spec, ...place }));
  return { ...parts, affinity, toleration, tolerations, podSpec };
};
type Pods = ReturnType<typeof buildPods>;

const buildServices = ({ mostly }: Odds) => {
  const ip = mostly(pick("192.0.2.1", "192.0.2.2", "2001:db8::1"), pick("127.0.0.1", "", "host", "192.0.2.1"));
  const externalIPs = fc.array(ip, { maxLength: 3 });
  const serviceSpec = buildWhole({
    ports: mostly(
      pick(
        [{ port: 80 }],
        [{ port: 53, protocol: "UDP" }],
        [
          { port: 80, name: "a" },
          { port: 443, name: "b" },
        ],
      ),
      pick([], [{ port: 0 }]),
    ),
    externalIPs: makeOptional(externalIPs, 2),
    ...makeRare({
      selector: labels,
      clusterIP: pick("None"),
      sessionAffinity: mostly(pick("ClientIP", "None"), pick("Else")),
      type: mostly(pick("ClusterIP", "NodePort", "LoadBalancer", "ExternalName"), pick("Odd")),
      externalName: pick("a.example.com"),
      internalTrafficPolicy: pick("Local"),
      publishNotReadyAddresses: fc.boolean(),
      ipFamilyPolicy: pick("SingleStack", "PreferDualStack"),
    }),
  });
  return { ip, externalIPs, serviceSpec };
};
type Services = ReturnType<typeof buildServices>;

const buildFinalizers = ({ mostly }: Odds) => {
  const protections = ["pv", "pvc", "vac"].map((short) => `kubernetes.io/${short}-protection`);
  return fc.uniqueArray(mostly(pick("example.com/keep", ...protections), pick("keep", "not valid/")), {
    maxLength: 3,
  });
};

const buildTaints = ({ mostly }: Odds) =>
  buildList(
    buildWhole({
      key: mostly(pick("node.kubernetes.io/not-ready", "dedicated"), pick("", "not valid")),
      value: pick(undefined, "", "x"),
      effect: mostly(pick("NoSchedule", "NoExecute", "PreferNoSchedule"), pick("Never")),
    }),
    3,
  );

const storage = pick("1Gi", "2Gi", "1e9", "0.5Gi");

const buildWorkloadSpecs = ({ odd, mostly }: Odds, { podSpec }: Pods) => {
  /** Builds a Deployment or a StatefulSet: common fields, and those that only one of them has. */
  const buildWorkload = (members: Record<string, Arbitrary<unknown>>) =>
    fc
      .tuple(labels, podSpec, mostly(pick(0, 1, 3, undefined), pick(-1)), buildWhole(members))
      .map(([labels, spec, replicas, own]): JsonMap => {
        const together = { app: "a", ...labels };
        const template = { metadata: { labels: together }, spec: odd ? spec : deleteRunOnceFields(spec) };
        return { spec: deleteUndefined({ replicas, selector: { matchLabels: together }, template, ...own }) };
      });

  return {
    deployments: buildWorkload({ strategy: makeOptional(pick({ type: "Recreate" }, {}), 1, 4) }),
    statefulsets: buildWorkload({
      serviceName: mostly(pick("a"), pick("", undefined)),
      podManagementPolicy: makeOptional(mostly(pick("Parallel"), pick("Odd")), 1, 4),
    }),
    jobs: buildWhole({
      spec: fc
        .tuple(podSpec, pick(undefined, 1, 3), mostly(pick(undefined, 4), pick(-1)), pick(undefined, true))
        .map(([spec, parallelism, completions, suspend]) => {
          const template = { spec: { ...deleteRunOnceFields(spec), restartPolicy: "Never" } };
          return deleteUndefined({ parallelism, completions, suspend, template });
        }),
    }),
  };
};

const buildStorageSpecs = ({ mostly }: Odds) => ({
  persistentvolumeclaims: buildWhole({
    spec: buildWhole({
      accessModes: mostly(pick(["ReadWriteOnce"], ["ReadOnlyMany"]), pick([], ["Never"])),
      resources: storage.map((storage) => ({ requests: { storage } })),
      ...makeRare({
        storageClassName: pick("fast", ""),
        volumeMode: pick("Block"),
        volumeName: pick("v"),
        selector: pick({ matchLabels: { a: "b" } }, {}),
        dataSource: pick({ kind: "PersistentVolumeClaim", name: "other" }),
        volumeAttributesClassName: pick("gold"),
      }),
    }),
  }),
  persistentvolumes: buildWhole({
    spec: buildWhole({
      capacity: mostly(
        storage.map((storage) => ({ storage })),
        fc.constant({}),
      ),
      accessModes: mostly(fc.constant(["ReadWriteOnce"]), fc.constant([])),
      hostPath: mostly(fc.constant({ path: "/x" }), fc.constant(undefined)),
      ...makeRare({
        persistentVolumeReclaimPolicy: pick("Delete", "Retain"),
        storageClassName: pick("fast"),
        volumeMode: pick("Block", "Filesystem"),
        claimRef: pick({ name: "a", namespace: "default" }),
        mountOptions: pick(["ro"], []),
      }),
    }),
  }),
  volumeattributesclasses: buildWhole({
    driverName: mostly(pick("example.com"), pick("", "Not Valid")),
    parameters: mostly(pick({ a: "b" }), pick({}, undefined)),
  }),
});

const buildSpecs = (odds: Odds, pods: Pods, { serviceSpec }: Services): Record<GeneratedKind, Arbitrary<JsonMap>> => {
  const { mostly } = odds;
  const taints = buildTaints(odds);
  return {
    ...buildWorkloadSpecs(odds, pods),
    ...buildStorageSpecs(odds),
    pods: buildWhole({ spec: pods.podSpec }),
    services: buildWhole({ spec: serviceSpec }),
    configmaps: buildPartial({
      data: fc.dictionary(mostly(pick("a", "b"), pick("a b")), pick("x", ""), { maxKeys: 2 }),
      immutable: fc.boolean(),
    }),
    nodes: buildPartial({
      spec: buildPartial({ taints, unschedulable: fc.boolean(), podCIDR: mostly(pick("10.1.0.0/24"), pick("x")) }),
      status: buildPartial({ capacity: pick({ cpu: "1" }), conditions: pick([{ type: "Ready", status: "True" }]) }),
    }),
    ingresses: buildWhole({
      spec: buildWhole({
        defaultBackend: mostly(pick({ service: { name: "a", port: { number: 80 } } }), pick(undefined, {})),
        ingressClassName: makeOptional(mostly(pick("web", "inner", "missing"), pick("", "not valid")), 1, 3),
      }),
    }),
    namespaces: buildPartial({ spec: pick({ finalizers: ["kubernetes"] }, { finalizers: ["example.com/keep"] }, {}) }),
    priorityclasses: buildWhole({
      value: mostly(pick(0, 5, 1000, -1), pick(2_000_000_000, undefined)),
      globalDefault: makeOptional(fc.boolean()),
      preemptionPolicy: makeOptional(mostly(pick("Never", "PreemptLowerPriority"), pick("Sometimes"))),
    }),
    podgroups: buildWhole({
      spec: buildWhole({
        schedulingPolicy: mostly(
          pick<JsonMap>({ basic: {} }, { gang: { minCount: 2 } }),
          pick({}, { gang: {}, basic: {} }),
        ),
        podGroupTemplateRef: makeOptional(
          fc
            .tuple(pick("work", "work", "ended-work", "missing"), pick("workers", "workers", "driver", "nobody"))
            .map(([workloadName, podGroupTemplateName]) => ({ workload: { workloadName, podGroupTemplateName } })),
          4,
        ),
      }),
    }),
    localsubjectaccessreviews: buildWhole({
      spec: buildWhole({ user: pick("jane"), resourceAttributes: pick({ verb: "get", resource: "pods" }) }),
    }),
  };
};

/** Annotations by which objects named their class before a field existed for it. */
const older: Partial<Record<GeneratedKind, Arbitrary<JsonMap | undefined>>> = {
  ingresses: makeOptional(pick({ "kubernetes.io/ingress.class": "web" }, { "kubernetes.io/ingress.class": "" }), 1, 4),
  persistentvolumeclaims: makeOptional(pick({ "volume.beta.kubernetes.io/storage-class": "slow" }), 1, 8),
};

const buildObjects = (odds: Odds, specs: Record<GeneratedKind, Arbitrary<JsonMap>>) => {
  const finalizers = buildFinalizers(odds);
  const metadata = buildWhole({
    labels: makeOptional(labels),
    annotations: makeOptional(annotations),
    finalizers: makeOptional(finalizers, 1, 3),
  });
  const storageMetadata = buildWhole({
    labels: makeOptional(labels),
    annotations: makeOptional(annotations),
    finalizers: makeOptional(finalizers, 2),
  });

  const buildObject = (kind: GeneratedKind): Arbitrary<JsonMap> =>
    fc
      .tuple(stored.includes(kind) ? storageMetadata : metadata, specs[kind], older[kind] ?? pick(undefined))
      .map(([metadata, rest, more]) => {
        const annotations = more && { annotations: { ...Object(metadata.annotations), ...more } };
        return {
          apiVersion: generatedKinds[kind].apiVersion,
          kind: generatedKinds[kind].kind,
          metadata: { ...metadata, ...annotations },
          ...rest,
        };
      });

  const common = [
    editAt("metadata.labels", labels),
    editAt("metadata.annotations", annotations),
    editAt("metadata.finalizers", makeOptional(finalizers, 3)),
  ];
  return { buildObject, common };
};

const buildEdits = (
  odds: Odds,
  pods: Pods,
  { ip, externalIPs }: Services,
): Record<GeneratedKind, Arbitrary<FieldEdit>[]> => {
  const { mostly, ifOdd } = odds;
  const { image, pullPolicy, affinity, toleration, tolerations, ephemeralContainers } = pods;
  const taints = buildTaints(odds);
  const ofTemplate = [
    editAt("spec.replicas", pick(0, 2, undefined)),
    editAt("spec.template.spec.containers.0.image", image),
    editAt("spec.template.spec.tolerations", tolerations),
  ];
  return {
    pods: [
      ...["containers.0", "containers.0", "containers.1", "initContainers.0"].map((place) =>
        editAt(`spec.${place}.image`, image),
      ),
      ...[editAt("spec.tolerations.-", toleration), editAt("spec.tolerations.-", toleration)],
      editAt("spec.activeDeadlineSeconds", mostly(pick(1, 50), pick(1000, undefined))),
      editAt("spec.schedulingGates", mostly(fc.constant([]), fc.constant(undefined))),
      ...ifOdd([
        editAt("spec.containers.0.imagePullPolicy", pullPolicy),
        editAt("spec.tolerations", makeOptional(tolerations)),
        editAt("spec.tolerations.0.tolerationSeconds", pick(1, undefined)),
        editAt("spec.affinity", affinity),
        editAt("spec.nodeSelector", pick({ a: "b" }, { a: "b", c: "d" })),
        editAt("spec.volumes.0.image.pullPolicy", pullPolicy),
        editAt("spec.ephemeralContainers", ephemeralContainers),
      ]),
    ],
    services: [
      editAt("spec.externalIPs", makeOptional(externalIPs, 3)),
      editAt("spec.externalIPs", externalIPs),
      editAt("spec.externalIPs.-", ip),
      editAt("spec.externalIPs.0", ip),
      editAt("spec.type", pick("ClusterIP", "LoadBalancer", "ExternalName")),
      editAt("spec.ports", pick([{ port: 81 }])),
    ],
    configmaps: [editAt("data", pick(undefined, { a: "y" })), editAt("data.a", pick("z", undefined))],
    persistentvolumeclaims: [
      editAt("spec.resources.requests.storage", storage),
      editAt("spec.volumeName", pick("other")),
    ],
    persistentvolumes: [editAt("spec.capacity.storage", storage), editAt("spec.hostPath.path", pick("/y"))],
    nodes: [
      editAt("spec.taints", makeOptional(taints, 3)),
      editAt(
        "spec.taints.-",
        taints.map(([first]) => first ?? { key: "x", effect: "NoSchedule" }),
      ),
      editAt("spec.unschedulable", pick(true, undefined)),
      editAt("spec.providerID", pick("a")),
    ],
    volumeattributesclasses: [editAt("parameters", pick({ a: "c" })), editAt("driverName", pick("b.example.com"))],
    deployments: [...ofTemplate, editAt("spec.paused", pick(true))],
    statefulsets: [...ofTemplate, editAt("spec.serviceName", pick("b"))],
    ingresses: [
      editAt("spec.ingressClassName", pick("web", "inner", undefined)),
      editAt("spec.tls", pick([{ hosts: ["a.example.com"] }])),
    ],
    jobs: [
      editAt("spec.parallelism", mostly(pick(0, 1, 2, 5), pick(-1))),
      editAt("spec.parallelism", pick(3, undefined)),
      editAt("spec.suspend", fc.boolean()),
    ],
    namespaces: [editAt("spec.finalizers", pick([], ["kubernetes"]))],
    priorityclasses: [
      editAt("globalDefault", pick(true, true, false, undefined)),
      editAt("description", pick("a", undefined)),
      editAt("value", pick(7)),
    ],
    podgroups: [editAt("spec.schedulingPolicy", pick({ basic: {} }))],
    localsubjectaccessreviews: [editAt("spec.user", pick("admin"))],
  };
};

/** Returns the edits of each subresource. A Scale is another kind of object with the same paths. */
const buildSubresources = (
  odds: Odds,
  { image, resources, ephemeralContainers }: Pods,
): Record<GeneratedKind, Record<string, Arbitrary<FieldEdit>>> => {
  const { mostly } = odds;
  const taints = buildTaints(odds);
  const ofWorkload = {
    scale: editAt("spec.replicas", mostly(pick(0, 1, 5), pick(-1))),
    status: editAt("status.replicas", mostly(pick(1), pick(-1))),
  };
  return {
    pods: {
      ephemeralcontainers: fc.oneof(
        editAt("spec.ephemeralContainers", ephemeralContainers),
        editAt(
          "spec.ephemeralContainers.-",
          ephemeralContainers.map(([first]) => first ?? { name: "e2", image: "debug" }),
        ),
        editAt("spec.containers.0.image", image),
      ),
      status: fc.oneof(
        editAt("status.phase", mostly(pick("Running", "Succeeded"), pick("Odd"))),
        editAt("status.message", pick("a")),
        editAt("spec.containers.0.image", image),
      ),
      resize: fc.oneof(
        editAt("spec.containers.0.resources", resources),
        editAt("spec.containers.0.resources.requests.cpu", pick("2", "100m")),
        editAt("spec.containers.0.image", image),
      ),
    },
    services: { status: editAt("status.loadBalancer", pick({ ingress: [{ ip: "192.0.2.7" }] }, {})) },
    configmaps: {},
    persistentvolumeclaims: { status: editAt("status.phase", pick("Bound", "Lost")) },
    persistentvolumes: { status: editAt("status.phase", pick("Available", "Released")) },
    nodes: {
      status: fc.oneof(editAt("status.capacity", pick({ cpu: "2" })), editAt("spec.taints", taints)),
    },
    volumeattributesclasses: {},
    deployments: ofWorkload,
    statefulsets: ofWorkload,
    ingresses: { status: editAt("status.loadBalancer", pick({ ingress: [{ ip: "192.0.2.7" }] }, {})) },
    jobs: { status: editAt("status.active", pick(1, 2)) },
    namespaces: { status: editAt("status.phase", mostly(pick("Active"), pick("Odd"))) },
    priorityclasses: {},
    podgroups: {},
    localsubjectaccessreviews: {},
  };
};

/**
 * Returns generators of objects and edits. A pod has so many parts that hardly any pod would be valid if each part were
 * sometimes invalid. So either all parts are valid, or (`odd`) many are not.
 */
export const createObjectGenerators = (odd: boolean) => {
  const odds: Odds = {
    odd,
    mostly: (valid, invalid) =>
      odd ? fc.oneof({ weight: 14, arbitrary: valid }, { weight: 1, arbitrary: invalid }) : valid,
    ifOdd: (arbitraries) => (odd ? arbitraries : []),
  };
  const [pods, services] = [buildPods(odds), buildServices(odds)];
  return {
    ...buildObjects(odds, buildSpecs(odds, pods, services)),
    edits: buildEdits(odds, pods, services),
    subresources: buildSubresources(odds, pods),
    tolerations: pods.tolerations,
  };
};

export type ObjectGenerators = ReturnType<typeof createObjectGenerators>;
