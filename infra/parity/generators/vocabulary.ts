import fc, { type Arbitrary } from "fast-check";
import type { JsonMap } from "#lib/json.ts";
import { at, defined, type Edit, type Kind, kinds, list, maybe, one, rarely, some, spoil, whole } from "./steps.ts";

// What objects of all kinds are made of, and how they are edited.

/** Whether now and then a part is wrong. */
interface Odds {
  odd: boolean;
  mostly<T, U>(valid: Arbitrary<T>, invalid: Arbitrary<U>): Arbitrary<T | U>;
  ifOdd<T>(arbitraries: T[]): T[];
}

const stored: readonly Kind[] = ["persistentvolumes", "persistentvolumeclaims", "volumeattributesclasses"];

/** The spec of a workload's pods, which are replaced for ever. */
const lasting = ({ restartPolicy: _, activeDeadlineSeconds: __, ...spec }: JsonMap): JsonMap => spec;

const labels = fc.dictionary(one("app", "tier", "example.com/team"), one("a", "b", ""), { maxKeys: 2 });
const annotations = fc.oneof(
  { weight: 9, arbitrary: fc.dictionary(one("note", "example.com/note"), one("a", ""), { maxKeys: 1 }) },
  { weight: 1, arbitrary: fc.constant({ [spoil]: "yes" }) },
);

const buildImages = ({ mostly }: Odds) => {
  const image = mostly(
    one(
      ...["app", "app:1", "app:latest", "registry.example.com/app:1", "registry.example.com:5000/team/app:2"],
      `registry.example.com/app@sha256:${"0af9".repeat(16)}`,
    ),
    one("", " app", "UPPER/App:1"),
  );
  const pullPolicy = mostly(one("Always", "IfNotPresent", "Never"), one("", "Sometimes"));
  return { image, pullPolicy };
};

const buildResources = ({ mostly, ifOdd }: Odds) => {
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
  return fc.oneof(
    { weight: 3, arbitrary: some({ requests: some(ordinary) }) },
    // Of an extended resource the request is the limit.
    { weight: 3, arbitrary: whole({ limits: some({ ...rarely(ordinary), ...rarely(extended) }) }) },
    { weight: 2, arbitrary: some(rarely(extended)).map((amounts) => ({ limits: amounts, requests: amounts })) },
    ...ifOdd([
      some({ requests: some(rarely({ ...extended, ...unusual })) }),
      some({ limits: some(rarely({ ...ordinary, ...unusual })) }),
    ]).map((arbitrary) => ({ weight: 1, arbitrary })),
  );
};

const buildProbe = ({ mostly }: Odds) =>
  fc
    .tuple(
      mostly(
        one<JsonMap>(
          ...[{ httpGet: { path: "/", port: 80 } }, { tcpSocket: { port: 80 } }, { exec: { command: ["true"] } }],
          ...[{ grpc: { port: 80 } }, { httpGet: { port: "named" } }],
        ),
        fc.constant({}),
      ),
      some({ periodSeconds: mostly(one(1, 10), one(-1)), failureThreshold: one(1, 3) }),
    )
    .map(([handler, numbers]) => ({ ...handler, ...numbers }));

const buildSecurityContexts = ({ mostly }: Odds) => {
  const securityContext = mostly(
    one<JsonMap>(
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
    one<JsonMap>(
      { runAsUser: -1 },
      { privileged: true, allowPrivilegeEscalation: false },
      { seccompProfile: { type: "Localhost" } },
    ),
  );

  const podSecurityContext = mostly(
    one<JsonMap>(
      ...[{}, { runAsUser: 1 }, { runAsUser: 0, runAsGroup: 0 }, { fsGroup: 1, fsGroupChangePolicy: "Always" }],
      ...[{ supplementalGroups: [] }, { supplementalGroups: [1, 2] }, { seLinuxOptions: { user: "u" } }],
      ...[{ runAsNonRoot: true }, { sysctls: [{ name: "kernel.shm_rmid_forced", value: "0" }] }],
    ),
    one<JsonMap>({ fsGroup: -1 }, { supplementalGroups: [-1] }, { sysctls: [{ name: "A B", value: "" }] }),
  );
  return { securityContext, podSecurityContext };
};

const buildContainers = (odds: Odds) => {
  const { odd, mostly } = odds;
  const { image, pullPolicy } = buildImages(odds);
  const [resources, probe] = [buildResources(odds), buildProbe(odds)];
  const { securityContext } = buildSecurityContexts(odds);
  const containerOf = (name: string): Arbitrary<JsonMap> =>
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
  const containers = (letter: string, minLength: number, maxLength: number): Arbitrary<JsonMap[]> =>
    fc.oneof(
      { withCrossShrink: true },
      ...Array.from({ length: maxLength - minLength + 1 }, (_, extra) => ({
        weight: maxLength - extra,
        arbitrary: fc.tuple(
          ...Array.from({ length: minLength + extra }, (_, index) => containerOf(`${letter}${index}`)),
        ) as Arbitrary<JsonMap[]>,
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
  return { image, pullPolicy, resources, containers, initContainers, ephemeralContainers };
};

const buildVolumes = (odds: Odds) => {
  const { mostly } = odds;
  const { image, pullPolicy } = buildImages(odds);
  return list(
    fc
      .tuple(
        mostly(fc.constant(undefined), fc.constant("v0")),
        mostly(
          fc.oneof(
            whole({ image: whole({ reference: image, pullPolicy: maybe(pullPolicy, 3) }) }),
            one<JsonMap>(
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
  return some({
    podAntiAffinity: podTerms,
    podAffinity: podTerms,
    nodeAffinity: one({
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
      arbitrary: whole({
        key: one(...lost, "example.com/gpu", "b.example.com/fpga", "dedicated"),
        operator: fc.constant("Exists"),
        effect: one(undefined, "NoExecute", "NoSchedule", "PreferNoSchedule"),
      }),
    },
    { weight: 2, arbitrary: one<JsonMap>({ operator: "Exists" }, { operator: "Exists", effect: "NoExecute" }) },
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
};

const buildPods = (odds: Odds) => {
  const { mostly } = odds;
  const parts = buildContainers(odds);
  const { containers, initContainers, ephemeralContainers } = parts;
  const [volumes, affinity, toleration] = [buildVolumes(odds), buildAffinity(odds), buildToleration(odds)];
  const { podSecurityContext } = buildSecurityContexts(odds);
  const tolerations = list(toleration, 3);

  const podSpec: Arbitrary<JsonMap> = fc
    .tuple(
      whole({
        containers: mostly(containers("c", 1, 3), fc.constant([])),
        initContainers: maybe(initContainers),
        volumes: maybe(volumes),
        affinity: maybe(affinity, 2),
        tolerations: maybe(tolerations, 2),
        ...rarely({
          nodeSelector: one({ a: "b" }),
          activeDeadlineSeconds: mostly(one(100), one(0)),
          terminationGracePeriodSeconds: one(0, 5),
          restartPolicy: mostly(one("Always", "Never", "OnFailure"), one("Maybe")),
          priorityClassName: mostly(one("system-node-critical", undefined), one("none-such")),
          runtimeClassName: mostly(fc.constant(undefined), one("none-such")),
          hostNetwork: mostly(fc.constant(undefined), one(true)),
          securityContext: podSecurityContext,
          resources: one<JsonMap | undefined>({ limits: { cpu: "64" } }, {}, undefined, undefined),
          automountServiceAccountToken: fc.boolean(),
          topologySpreadConstraints: one([{ maxSkew: 1, topologyKey: "zone", whenUnsatisfiable: "DoNotSchedule" }]),
        }),
        ephemeralContainers: mostly(fc.constant(undefined), ephemeralContainers),
      }),
      // A pod that waits at a gate is on no node.
      one<JsonMap>({}, {}, {}, { nodeName: "n1" }, { schedulingGates: [{ name: "example.com/gate" }] }),
    )
    .map(([spec, place]) => ({ ...spec, ...place }));
  return { ...parts, affinity, toleration, tolerations, podSpec };
};
type Pods = ReturnType<typeof buildPods>;

const buildServices = ({ mostly }: Odds) => {
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
  return { ip, externalIPs, serviceSpec };
};
type Services = ReturnType<typeof buildServices>;

const buildFinalizers = ({ mostly }: Odds) => {
  const protections = ["pv", "pvc", "vac"].map((short) => `kubernetes.io/${short}-protection`);
  return fc.uniqueArray(mostly(one("example.com/keep", ...protections), one("keep", "not valid/")), {
    maxLength: 3,
  });
};

const buildTaints = ({ mostly }: Odds) =>
  list(
    whole({
      key: mostly(one("node.kubernetes.io/not-ready", "dedicated"), one("", "not valid")),
      value: one(undefined, "", "x"),
      effect: mostly(one("NoSchedule", "NoExecute", "PreferNoSchedule"), one("Never")),
    }),
    3,
  );

const storage = one("1Gi", "2Gi", "1e9", "0.5Gi");

const buildSpecs = (odds: Odds, { podSpec }: Pods, { serviceSpec }: Services): Record<Kind, Arbitrary<JsonMap>> => {
  const { odd, mostly } = odds;
  const taints = buildTaints(odds);
  /** What a Deployment and a StatefulSet have in common, and what only one of them has. */
  const workload = (members: Record<string, Arbitrary<unknown>>) =>
    fc
      .tuple(labels, podSpec, mostly(one(0, 1, 3, undefined), one(-1)), whole(members))
      .map(([labels, spec, replicas, own]): JsonMap => {
        const together = { app: "a", ...labels };
        const template = { metadata: { labels: together }, spec: odd ? spec : lasting(spec) };
        return { spec: defined({ replicas, selector: { matchLabels: together }, template, ...own }) };
      });

  return {
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
        schedulingPolicy: mostly(
          one<JsonMap>({ basic: {} }, { gang: { minCount: 2 } }),
          one({}, { gang: {}, basic: {} }),
        ),
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
};

/** How a class was named before there was a field for it. */
const older: Partial<Record<Kind, Arbitrary<JsonMap | undefined>>> = {
  ingresses: maybe(one({ "kubernetes.io/ingress.class": "web" }, { "kubernetes.io/ingress.class": "" }), 1, 4),
  persistentvolumeclaims: maybe(one({ "volume.beta.kubernetes.io/storage-class": "slow" }), 1, 8),
};

const buildObjects = (odds: Odds, specs: Record<Kind, Arbitrary<JsonMap>>) => {
  const finalizers = buildFinalizers(odds);
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

  const objectOf = (kind: Kind): Arbitrary<JsonMap> =>
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
  return { objectOf, common };
};

const buildEdits = (odds: Odds, pods: Pods, { ip, externalIPs }: Services): Record<Kind, Arbitrary<Edit>[]> => {
  const { mostly, ifOdd } = odds;
  const { image, pullPolicy, affinity, toleration, tolerations, ephemeralContainers } = pods;
  const taints = buildTaints(odds);
  const ofTemplate = [
    at("spec.replicas", one(0, 2, undefined)),
    at("spec.template.spec.containers.0.image", image),
    at("spec.template.spec.tolerations", tolerations),
  ];
  return {
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
};

/** What each subresource is changed by; a scale is an object of its own, with the same paths. */
const buildSubresources = (
  odds: Odds,
  { image, resources, ephemeralContainers }: Pods,
): Record<Kind, Record<string, Arbitrary<Edit>>> => {
  const { mostly } = odds;
  const taints = buildTaints(odds);
  const ofWorkload = {
    scale: at("spec.replicas", mostly(one(0, 1, 5), one(-1))),
    status: at("status.replicas", mostly(one(1), one(-1))),
  };
  return {
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
};

/**
 * Returns all parts. A pod has so many of them that if each were wrong now and then, hardly any would be right: either
 * nothing is wrong, or much.
 */
export const vocabulary = (odd: boolean) => {
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

export type Vocabulary = ReturnType<typeof vocabulary>;
