import fc, { type Arbitrary } from "fast-check";
import type { JsonMap } from "#lib/json.ts";
import {
  addSometimes,
  buildList,
  competingWebhookAnnotation,
  type FieldEdit,
  type GeneratedKind,
  generateFieldEdit,
  generateObjects,
  generatePartialObjects,
  makeMembersRare,
  omitUndefinedMembers,
  parityGeneratedKinds,
  pickOne,
} from "./steps.ts";

// Generates objects of all kinds, and their edits.

/** Decides whether generated objects may have invalid parts. */
interface Odds {
  mayBeInvalid: boolean;
  /** Generates a valid value; if objects may be invalid, in one of 15 cases an invalid value. */
  mostlyValid<T, U>(valid: Arbitrary<T>, invalid: Arbitrary<U>): Arbitrary<T | U>;
  /** Returns these generators if objects may be invalid, otherwise none. */
  ifMayBeInvalid<T>(arbitraries: T[]): T[];
}

const storageKinds: readonly GeneratedKind[] = [
  "persistentvolumes",
  "persistentvolumeclaims",
  "volumeattributesclasses",
];

/** Returns a pod spec without restartPolicy and activeDeadlineSeconds: templates of Deployments can't have these. */
const omitRestartPolicyAndDeadline = ({ restartPolicy: _, activeDeadlineSeconds: __, ...spec }: JsonMap): JsonMap =>
  spec;

const labels = fc.dictionary(pickOne("app", "tier", "example.com/team"), pickOne("a", "b", ""), { maxKeys: 2 });
const annotations = fc.oneof(
  { weight: 9, arbitrary: fc.dictionary(pickOne("note", "example.com/note"), pickOne("a", ""), { maxKeys: 1 }) },
  { weight: 1, arbitrary: fc.constant({ [competingWebhookAnnotation]: "yes" }) },
);

/** Builds generators of image names and pull policies. */
const buildImages = ({ mostlyValid }: Odds) => {
  const image = mostlyValid(
    pickOne(
      "app",
      "app:1",
      "app:latest",
      "registry.example.com/app:1",
      "registry.example.com:5000/team/app:2",
      `registry.example.com/app@sha256:${"0af9".repeat(16)}`,
    ),
    pickOne("", " app", "UPPER/App:1"),
  );
  const pullPolicy = mostlyValid(pickOne("Always", "IfNotPresent", "Never"), pickOne("", "Sometimes"));
  return { image, pullPolicy };
};

/** Builds a generator of the resources of a container. */
const buildResources = ({ mostlyValid, ifMayBeInvalid }: Odds) => {
  const quantity = mostlyValid(pickOne("1", "2", "0", "4k"), pickOne("-1", "one", "1.5", "1e3", "0.0001", "", "1Ki"));
  const ordinary = {
    cpu: pickOne("1", "100m", "0.5", "1e-1", "1.500"),
    memory: pickOne("1Gi", "128Mi", "1e9", "1G", "64.5Mi"),
    "ephemeral-storage": pickOne("1Gi"),
  };
  const extended = Object.fromEntries(
    ["example.com/gpu", "example.com/GPU_2.x", "b.example.com/fpga", "a/b"].map((name) => [name, quantity]),
  );
  const unusual = Object.fromEntries(
    [
      "kubernetes.io/batch",
      "requests.example.com/x",
      "requests.kubernetes.io/x",
      "x.kubernetes.io/y",
      "hugepages-2Mi",
      "nodomain",
      "Example.com/gpu",
      "example.com/-x",
      `example.com/${"x".repeat(64)}`,
      "a.b.c/d/e",
    ].map((name) => [name, quantity]),
  );
  return fc.oneof(
    { weight: 3, arbitrary: generatePartialObjects({ requests: generatePartialObjects(ordinary) }) },
    // The request of an extended resource must equal its limit; if only the limit is set, it is also the request.
    {
      weight: 3,
      arbitrary: generateObjects({
        limits: generatePartialObjects({ ...makeMembersRare(ordinary), ...makeMembersRare(extended) }),
      }),
    },
    {
      weight: 2,
      arbitrary: generatePartialObjects(makeMembersRare(extended)).map((amounts) => ({
        limits: amounts,
        requests: amounts,
      })),
    },
    ...ifMayBeInvalid([
      generatePartialObjects({ requests: generatePartialObjects(makeMembersRare({ ...extended, ...unusual })) }),
      generatePartialObjects({ limits: generatePartialObjects(makeMembersRare({ ...ordinary, ...unusual })) }),
    ]).map((arbitrary) => ({ weight: 1, arbitrary })),
  );
};

/** Builds a generator of probes. */
const buildProbe = ({ mostlyValid }: Odds) =>
  fc
    .tuple(
      mostlyValid(
        pickOne<JsonMap>(
          { httpGet: { path: "/", port: 80 } },
          { tcpSocket: { port: 80 } },
          { exec: { command: ["true"] } },
          { grpc: { port: 80 } },
          { httpGet: { port: "named" } },
        ),
        fc.constant({}),
      ),
      generatePartialObjects({
        periodSeconds: mostlyValid(pickOne(1, 10), pickOne(-1)),
        failureThreshold: pickOne(1, 3),
      }),
    )
    .map(([handler, numbers]) => ({ ...handler, ...numbers }));

/** Builds generators of the security contexts of containers and of pods. */
const buildSecurityContexts = ({ mostlyValid }: Odds) => {
  const securityContext = mostlyValid(
    pickOne<JsonMap>(
      {},
      { privileged: true },
      { runAsUser: 0, allowPrivilegeEscalation: true },
      { runAsUser: 1000, runAsNonRoot: true },
      { capabilities: { drop: ["ALL"] }, allowPrivilegeEscalation: false },
      { capabilities: { add: ["NET_ADMIN"] } },
      { seLinuxOptions: { level: "s0:c1,c2" } },
      { seLinuxOptions: {}, readOnlyRootFilesystem: true, runAsGroup: 0 },
      { seccompProfile: { type: "RuntimeDefault" } },
    ),
    pickOne<JsonMap>(
      { runAsUser: -1 },
      { privileged: true, allowPrivilegeEscalation: false },
      { seccompProfile: { type: "Localhost" } },
    ),
  );

  const podSecurityContext = mostlyValid(
    pickOne<JsonMap>(
      {},
      { runAsUser: 1 },
      { runAsUser: 0, runAsGroup: 0 },
      { fsGroup: 1, fsGroupChangePolicy: "Always" },
      { supplementalGroups: [] },
      { supplementalGroups: [1, 2] },
      { seLinuxOptions: { user: "u" } },
      { runAsNonRoot: true },
      { sysctls: [{ name: "kernel.shm_rmid_forced", value: "0" }] },
    ),
    pickOne<JsonMap>({ fsGroup: -1 }, { supplementalGroups: [-1] }, { sysctls: [{ name: "A B", value: "" }] }),
  );
  return { securityContext, podSecurityContext };
};

/** Builds generators of lists of containers, init containers and ephemeral containers. */
const buildContainers = (odds: Odds) => {
  const { mayBeInvalid, mostlyValid } = odds;
  const { image, pullPolicy } = buildImages(odds);
  const [resources, probe] = [buildResources(odds), buildProbe(odds)];
  const { securityContext } = buildSecurityContexts(odds);
  const buildContainer = (name: string): Arbitrary<JsonMap> =>
    generateObjects({
      name: mostlyValid(fc.constant(name), pickOne("Bad_Name", "c0")),
      image: mostlyValid(image, fc.constant(undefined)),
      imagePullPolicy: addSometimes(pullPolicy, "in 3 of 4"),
      ...makeMembersRare({
        resources,
        livenessProbe: probe,
        readinessProbe: probe,
        startupProbe: probe,
        lifecycle: pickOne({ preStop: { exec: { command: ["true"] } } }, { postStart: { sleep: { seconds: 1 } } }, {}),
        securityContext,
        resizePolicy: pickOne([{ resourceName: "cpu", restartPolicy: "NotRequired" }], []),
        env: buildList(generateObjects({ name: pickOne("A", "B"), value: pickOne("x", "") })),
        ports: buildList(
          generateObjects({
            containerPort: mostlyValid(pickOne(80, 443), pickOne(0)),
            protocol: addSometimes(pickOne("UDP")),
          }),
        ),
      }),
    });
  /** Generates lists of containers named by position, such as `c0`, `c1`. Shorter lists are generated more often. */
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
    .tuple(buildContainerList("i", 1, 2), pickOne(undefined, undefined, "Always"))
    .map(([containers, restartPolicy]) => {
      // Only init containers that keep running, with the restartPolicy Always, may have these members.
      const membersOfRunning = ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resizePolicy"];
      const omitted = restartPolicy || mayBeInvalid ? [] : membersOfRunning;
      const omittedMembers = Object.fromEntries(omitted.map((member) => [member, undefined]));
      return containers.map((one) => omitUndefinedMembers({ ...one, ...omittedMembers, restartPolicy }));
    });
  const ephemeralContainer = fc.tuple(pickOne("e0", "e1"), image, addSometimes(pullPolicy, "in 3 of 4"));
  const ephemeralContainers = buildList(
    ephemeralContainer.map(([name, image, imagePullPolicy]) => omitUndefinedMembers({ name, image, imagePullPolicy })),
  );
  return { image, pullPolicy, resources, buildContainerList, initContainers, ephemeralContainers };
};

/** Generates volumes. They are named by position, `v0` and `v1`, but an invalid second volume is also named `v0`. */
const buildVolumes = (odds: Odds) => {
  const { mostlyValid } = odds;
  const { image, pullPolicy } = buildImages(odds);
  return buildList(
    fc
      .tuple(
        mostlyValid(fc.constant(undefined), fc.constant("v0")),
        mostlyValid(
          fc.oneof(
            generateObjects({
              image: generateObjects({ reference: image, pullPolicy: addSometimes(pullPolicy, "in 3 of 4") }),
            }),
            pickOne<JsonMap>(
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
  ).map((volumes) => volumes.map(({ name, ...source }, index) => ({ name: name ?? `v${index}`, ...source })));
};

/** Builds a generator of the affinity of a pod. */
const buildAffinity = ({ mostlyValid }: Odds) => {
  const topologyKey = mostlyValid(
    pickOne("kubernetes.io/hostname", "kubernetes.io/hostname", "topology.kubernetes.io/zone", "rack"),
    pickOne("", "not valid/", "Kubernetes.io/hostname"),
  );
  const term = generateObjects({
    topologyKey,
    labelSelector: pickOne<unknown>({ matchLabels: { app: "a" } }, {}, undefined),
    namespaces: addSometimes(pickOne(["default"])),
  });
  const preferred = generateObjects({ weight: mostlyValid(pickOne(1, 100), pickOne(0)), podAffinityTerm: term });
  const podTerms = generatePartialObjects({
    requiredDuringSchedulingIgnoredDuringExecution: buildList(term, 3),
    preferredDuringSchedulingIgnoredDuringExecution: buildList(preferred, 2),
  });
  return generatePartialObjects({
    podAntiAffinity: podTerms,
    podAffinity: podTerms,
    nodeAffinity: pickOne({
      requiredDuringSchedulingIgnoredDuringExecution: {
        nodeSelectorTerms: [{ matchExpressions: [{ key: "a", operator: "Exists" }] }],
      },
    }),
  });
};

/** Builds a generator of tolerations: valid ones of several forms, and invalid ones. */
const buildToleration = ({ ifMayBeInvalid }: Odds) => {
  const lost = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
  return fc.oneof(
    {
      weight: 6,
      arbitrary: generateObjects({
        key: pickOne(...lost, "example.com/gpu", "b.example.com/fpga", "dedicated"),
        operator: fc.constant("Exists"),
        effect: pickOne(undefined, "NoExecute", "NoSchedule", "PreferNoSchedule"),
      }),
    },
    { weight: 2, arbitrary: pickOne<JsonMap>({ operator: "Exists" }, { operator: "Exists", effect: "NoExecute" }) },
    {
      weight: 3,
      arbitrary: generateObjects({
        key: pickOne(...lost, "example.com/gpu"),
        operator: pickOne("Exists", "Equal"),
        effect: fc.constant("NoExecute"),
        tolerationSeconds: pickOne(undefined, 0, 5, 300, -1),
      }),
    },
    {
      weight: 2,
      arbitrary: generateObjects({
        key: pickOne(...lost, "example.com/gpu"),
        operator: pickOne(undefined, "Equal"),
        value: pickOne(undefined, "", "x"),
        effect: pickOne(undefined, "NoExecute", "NoSchedule"),
      }),
    },
    ...ifMayBeInvalid([
      generatePartialObjects({
        key: pickOne("", "example.com/gpu", "not valid"),
        operator: pickOne("", "Exists", "Lt", "In"),
        value: pickOne("", "x", "5"),
        effect: pickOne("", "NoSchedule", "NoExecute", "Never"),
        tolerationSeconds: pickOne(0, 5),
      }),
    ]).map((arbitrary) => ({ weight: 3, arbitrary })),
  );
};

/** Builds generators of pod specs and of their parts. */
const buildPods = (odds: Odds) => {
  const { mostlyValid } = odds;
  const parts = buildContainers(odds);
  const { buildContainerList, initContainers, ephemeralContainers } = parts;
  const [volumes, affinity, toleration] = [buildVolumes(odds), buildAffinity(odds), buildToleration(odds)];
  const { podSecurityContext } = buildSecurityContexts(odds);
  const tolerations = buildList(toleration, 3);

  const podSpec: Arbitrary<JsonMap> = fc
    .tuple(
      generateObjects({
        containers: mostlyValid(buildContainerList("c", 1, 3), fc.constant([])),
        initContainers: addSometimes(initContainers),
        volumes: addSometimes(volumes),
        affinity: addSometimes(affinity, "in 2 of 3"),
        tolerations: addSometimes(tolerations, "in 2 of 3"),
        ...makeMembersRare({
          nodeSelector: pickOne({ a: "b" }),
          activeDeadlineSeconds: mostlyValid(pickOne(100), pickOne(0)),
          terminationGracePeriodSeconds: pickOne(0, 5),
          restartPolicy: mostlyValid(pickOne("Always", "Never", "OnFailure"), pickOne("Maybe")),
          priorityClassName: mostlyValid(pickOne("system-node-critical", undefined), pickOne("none-such")),
          runtimeClassName: mostlyValid(fc.constant(undefined), pickOne("none-such")),
          hostNetwork: mostlyValid(fc.constant(undefined), pickOne(true)),
          securityContext: podSecurityContext,
          resources: pickOne<JsonMap | undefined>({ limits: { cpu: "64" } }, {}, undefined, undefined),
          automountServiceAccountToken: fc.boolean(),
          topologySpreadConstraints: pickOne([{ maxSkew: 1, topologyKey: "zone", whenUnsatisfiable: "DoNotSchedule" }]),
        }),
        ephemeralContainers: mostlyValid(fc.constant(undefined), ephemeralContainers),
      }),
      // A pod with a scheduling gate has no node.
      pickOne<JsonMap>({}, {}, {}, { nodeName: "n1" }, { schedulingGates: [{ name: "example.com/gate" }] }),
    )
    .map(([spec, place]) => ({ ...spec, ...place }));
  return { ...parts, affinity, toleration, tolerations, podSpec };
};
type Pods = ReturnType<typeof buildPods>;

/** Builds generators of Service specs and of external IP addresses. */
const buildServices = ({ mostlyValid }: Odds) => {
  // The second list is for invalid objects, but its last address is valid.
  const ip = mostlyValid(
    pickOne("192.0.2.1", "192.0.2.2", "2001:db8::1"),
    pickOne("127.0.0.1", "", "host", "192.0.2.1"),
  );
  const externalIPs = fc.array(ip, { maxLength: 3 });
  const serviceSpec = generateObjects({
    ports: mostlyValid(
      pickOne(
        [{ port: 80 }],
        [{ port: 53, protocol: "UDP" }],
        [
          { port: 80, name: "a" },
          { port: 443, name: "b" },
        ],
      ),
      pickOne([], [{ port: 0 }]),
    ),
    externalIPs: addSometimes(externalIPs, "in 2 of 3"),
    ...makeMembersRare({
      selector: labels,
      clusterIP: pickOne("None"),
      sessionAffinity: mostlyValid(pickOne("ClientIP", "None"), pickOne("Else")),
      type: mostlyValid(pickOne("ClusterIP", "NodePort", "LoadBalancer", "ExternalName"), pickOne("Odd")),
      externalName: pickOne("a.example.com"),
      internalTrafficPolicy: pickOne("Local"),
      publishNotReadyAddresses: fc.boolean(),
      ipFamilyPolicy: pickOne("SingleStack", "PreferDualStack"),
    }),
  });
  return { ip, externalIPs, serviceSpec };
};
type Services = ReturnType<typeof buildServices>;

const buildFinalizers = ({ mostlyValid }: Odds) => {
  const protections = ["pv", "pvc", "vac"].map((short) => `kubernetes.io/${short}-protection`);
  return fc.uniqueArray(mostlyValid(pickOne("example.com/keep", ...protections), pickOne("keep", "not valid/")), {
    maxLength: 3,
  });
};

const buildTaints = ({ mostlyValid }: Odds) =>
  buildList(
    generateObjects({
      key: mostlyValid(pickOne("node.kubernetes.io/not-ready", "dedicated"), pickOne("", "not valid")),
      value: pickOne(undefined, "", "x"),
      effect: mostlyValid(pickOne("NoSchedule", "NoExecute", "PreferNoSchedule"), pickOne("Never")),
    }),
    3,
  );

const storage = pickOne("1Gi", "2Gi", "1e9", "0.5Gi");

/** Builds generators of Deployments, StatefulSets and Jobs. */
const buildWorkloadSpecs = ({ mayBeInvalid, mostlyValid }: Odds, { podSpec }: Pods) => {
  /** Generates a Deployment's or StatefulSet's spec: the fields that both have, and those in `members`. */
  const buildWorkload = (members: Record<string, Arbitrary<unknown>>) =>
    fc
      .tuple(labels, podSpec, mostlyValid(pickOne(0, 1, 3, undefined), pickOne(-1)), generateObjects(members))
      .map(([labels, spec, replicas, moreFields]): JsonMap => {
        const matchLabels = { app: "a", ...labels };
        const template = {
          metadata: { labels: matchLabels },
          spec: mayBeInvalid ? spec : omitRestartPolicyAndDeadline(spec),
        };
        return { spec: omitUndefinedMembers({ replicas, selector: { matchLabels }, template, ...moreFields }) };
      });

  return {
    deployments: buildWorkload({ strategy: addSometimes(pickOne({ type: "Recreate" }, {}), "in 1 of 5") }),
    statefulsets: buildWorkload({
      serviceName: mostlyValid(pickOne("a"), pickOne("", undefined)),
      podManagementPolicy: addSometimes(mostlyValid(pickOne("Parallel"), pickOne("Odd")), "in 1 of 5"),
    }),
    jobs: generateObjects({
      spec: fc
        .tuple(
          podSpec,
          pickOne(undefined, 1, 3),
          mostlyValid(pickOne(undefined, 4), pickOne(-1)),
          pickOne(undefined, true),
        )
        .map(([spec, parallelism, completions, suspend]) => {
          const template = { spec: { ...omitRestartPolicyAndDeadline(spec), restartPolicy: "Never" } };
          return omitUndefinedMembers({ parallelism, completions, suspend, template });
        }),
    }),
  };
};

/** Builds generators of the kinds of storage. */
const buildStorageSpecs = ({ mostlyValid }: Odds) => ({
  persistentvolumeclaims: generateObjects({
    spec: generateObjects({
      accessModes: mostlyValid(pickOne(["ReadWriteOnce"], ["ReadOnlyMany"]), pickOne([], ["Never"])),
      resources: storage.map((storage) => ({ requests: { storage } })),
      ...makeMembersRare({
        storageClassName: pickOne("fast", ""),
        volumeMode: pickOne("Block"),
        volumeName: pickOne("v"),
        selector: pickOne({ matchLabels: { a: "b" } }, {}),
        dataSource: pickOne({ kind: "PersistentVolumeClaim", name: "other" }),
        volumeAttributesClassName: pickOne("gold"),
      }),
    }),
  }),
  persistentvolumes: generateObjects({
    spec: generateObjects({
      capacity: mostlyValid(
        storage.map((storage) => ({ storage })),
        fc.constant({}),
      ),
      accessModes: mostlyValid(fc.constant(["ReadWriteOnce"]), fc.constant([])),
      hostPath: mostlyValid(fc.constant({ path: "/x" }), fc.constant(undefined)),
      ...makeMembersRare({
        persistentVolumeReclaimPolicy: pickOne("Delete", "Retain"),
        storageClassName: pickOne("fast"),
        volumeMode: pickOne("Block", "Filesystem"),
        claimRef: pickOne({ name: "a", namespace: "default" }),
        mountOptions: pickOne(["ro"], []),
      }),
    }),
  }),
  volumeattributesclasses: generateObjects({
    driverName: mostlyValid(pickOne("example.com"), pickOne("", "Not Valid")),
    parameters: mostlyValid(pickOne({ a: "b" }), pickOne({}, undefined)),
  }),
});

/** Builds generators of the fields of objects beside apiVersion, kind and metadata, by kind. */
const buildSpecs = (odds: Odds, pods: Pods, { serviceSpec }: Services): Record<GeneratedKind, Arbitrary<JsonMap>> => {
  const { mostlyValid } = odds;
  const taints = buildTaints(odds);
  return {
    ...buildWorkloadSpecs(odds, pods),
    ...buildStorageSpecs(odds),
    pods: generateObjects({ spec: pods.podSpec }),
    services: generateObjects({ spec: serviceSpec }),
    configmaps: generatePartialObjects({
      data: fc.dictionary(mostlyValid(pickOne("a", "b"), pickOne("a b")), pickOne("x", ""), { maxKeys: 2 }),
      immutable: fc.boolean(),
    }),
    nodes: generatePartialObjects({
      spec: generatePartialObjects({
        taints,
        unschedulable: fc.boolean(),
        podCIDR: mostlyValid(pickOne("10.1.0.0/24"), pickOne("x")),
      }),
      status: generatePartialObjects({
        capacity: pickOne({ cpu: "1" }),
        conditions: pickOne([{ type: "Ready", status: "True" }]),
      }),
    }),
    ingresses: generateObjects({
      spec: generateObjects({
        defaultBackend: mostlyValid(pickOne({ service: { name: "a", port: { number: 80 } } }), pickOne(undefined, {})),
        ingressClassName: addSometimes(
          mostlyValid(pickOne("web", "inner", "missing"), pickOne("", "not valid")),
          "in 1 of 4",
        ),
      }),
    }),
    namespaces: generatePartialObjects({
      spec: pickOne({ finalizers: ["kubernetes"] }, { finalizers: ["example.com/keep"] }, {}),
    }),
    priorityclasses: generateObjects({
      value: mostlyValid(pickOne(0, 5, 1000, -1), pickOne(2_000_000_000, undefined)),
      globalDefault: addSometimes(fc.boolean()),
      preemptionPolicy: addSometimes(mostlyValid(pickOne("Never", "PreemptLowerPriority"), pickOne("Sometimes"))),
    }),
    podgroups: generateObjects({
      spec: generateObjects({
        schedulingPolicy: mostlyValid(
          pickOne<JsonMap>({ basic: {} }, { gang: { minCount: 2 } }),
          pickOne({}, { gang: {}, basic: {} }),
        ),
        podGroupTemplateRef: addSometimes(
          fc
            .tuple(pickOne("work", "work", "ended-work", "missing"), pickOne("workers", "workers", "driver", "nobody"))
            .map(([workloadName, podGroupTemplateName]) => ({ workload: { workloadName, podGroupTemplateName } })),
          "in 4 of 5",
        ),
      }),
    }),
    localsubjectaccessreviews: generateObjects({
      spec: generateObjects({
        user: pickOne("jane"),
        resourceAttributes: pickOne({ verb: "get", resource: "pods" }),
      }),
    }),
  };
};

/** Annotations with the name of an object's class. Before Kubernetes had a field for the class, they were used. */
const classAnnotations: Partial<Record<GeneratedKind, Arbitrary<JsonMap | undefined>>> = {
  ingresses: addSometimes(
    pickOne({ "kubernetes.io/ingress.class": "web" }, { "kubernetes.io/ingress.class": "" }),
    "in 1 of 5",
  ),
  persistentvolumeclaims: addSometimes(pickOne({ "volume.beta.kubernetes.io/storage-class": "slow" }), "in 1 of 9"),
};

/** Builds a generator of objects of a kind, and generators of edits that fit all kinds. */
const buildObjects = (odds: Odds, specs: Record<GeneratedKind, Arbitrary<JsonMap>>) => {
  const finalizers = buildFinalizers(odds);
  const metadata = generateObjects({
    labels: addSometimes(labels),
    annotations: addSometimes(annotations),
    finalizers: addSometimes(finalizers, "in 1 of 4"),
  });
  // Objects of storage kinds have finalizers more often.
  const storageMetadata = generateObjects({
    labels: addSometimes(labels),
    annotations: addSometimes(annotations),
    finalizers: addSometimes(finalizers, "in 2 of 3"),
  });

  const buildObject = (kind: GeneratedKind): Arbitrary<JsonMap> =>
    fc
      .tuple(
        storageKinds.includes(kind) ? storageMetadata : metadata,
        specs[kind],
        classAnnotations[kind] ?? pickOne(undefined),
      )
      .map(([metadata, rest, added]) => {
        const { apiVersion, kind: kindName } = parityGeneratedKinds[kind];
        const annotations = added && { annotations: { ...Object(metadata.annotations), ...added } };
        return { apiVersion, kind: kindName, metadata: { ...metadata, ...annotations }, ...rest };
      });

  const common = [
    generateFieldEdit("metadata.labels", labels),
    generateFieldEdit("metadata.annotations", annotations),
    generateFieldEdit("metadata.finalizers", addSometimes(finalizers, "in 3 of 4")),
  ];
  return { buildObject, common };
};

/** Returns generators of edits by kind. */
const buildEdits = (
  odds: Odds,
  pods: Pods,
  { ip, externalIPs }: Services,
): Record<GeneratedKind, Arbitrary<FieldEdit>[]> => {
  const { mostlyValid, ifMayBeInvalid } = odds;
  const { image, pullPolicy, affinity, toleration, tolerations, ephemeralContainers } = pods;
  const taints = buildTaints(odds);
  const ofTemplate = [
    generateFieldEdit("spec.replicas", pickOne(0, 2, undefined)),
    generateFieldEdit("spec.template.spec.containers.0.image", image),
    generateFieldEdit("spec.template.spec.tolerations", tolerations),
  ];
  return {
    pods: [
      ...["containers.0", "containers.0", "containers.1", "initContainers.0"].map((place) =>
        generateFieldEdit(`spec.${place}.image`, image),
      ),
      generateFieldEdit("spec.tolerations.-", toleration),
      generateFieldEdit("spec.tolerations.-", toleration),
      generateFieldEdit("spec.activeDeadlineSeconds", mostlyValid(pickOne(1, 50), pickOne(1000, undefined))),
      generateFieldEdit("spec.schedulingGates", mostlyValid(fc.constant([]), fc.constant(undefined))),
      ...ifMayBeInvalid([
        generateFieldEdit("spec.containers.0.imagePullPolicy", pullPolicy),
        generateFieldEdit("spec.tolerations", addSometimes(tolerations)),
        generateFieldEdit("spec.tolerations.0.tolerationSeconds", pickOne(1, undefined)),
        generateFieldEdit("spec.affinity", affinity),
        generateFieldEdit("spec.nodeSelector", pickOne({ a: "b" }, { a: "b", c: "d" })),
        generateFieldEdit("spec.volumes.0.image.pullPolicy", pullPolicy),
        generateFieldEdit("spec.ephemeralContainers", ephemeralContainers),
      ]),
    ],
    services: [
      generateFieldEdit("spec.externalIPs", addSometimes(externalIPs, "in 3 of 4")),
      generateFieldEdit("spec.externalIPs", externalIPs),
      generateFieldEdit("spec.externalIPs.-", ip),
      generateFieldEdit("spec.externalIPs.0", ip),
      generateFieldEdit("spec.type", pickOne("ClusterIP", "LoadBalancer", "ExternalName")),
      generateFieldEdit("spec.ports", pickOne([{ port: 81 }])),
    ],
    configmaps: [
      generateFieldEdit("data", pickOne(undefined, { a: "y" })),
      generateFieldEdit("data.a", pickOne("z", undefined)),
    ],
    persistentvolumeclaims: [
      generateFieldEdit("spec.resources.requests.storage", storage),
      generateFieldEdit("spec.volumeName", pickOne("other")),
    ],
    persistentvolumes: [
      generateFieldEdit("spec.capacity.storage", storage),
      generateFieldEdit("spec.hostPath.path", pickOne("/y")),
    ],
    nodes: [
      generateFieldEdit("spec.taints", addSometimes(taints, "in 3 of 4")),
      generateFieldEdit(
        "spec.taints.-",
        taints.map(([first]) => first ?? { key: "x", effect: "NoSchedule" }),
      ),
      generateFieldEdit("spec.unschedulable", pickOne(true, undefined)),
      generateFieldEdit("spec.providerID", pickOne("a")),
    ],
    volumeattributesclasses: [
      generateFieldEdit("parameters", pickOne({ a: "c" })),
      generateFieldEdit("driverName", pickOne("b.example.com")),
    ],
    deployments: [...ofTemplate, generateFieldEdit("spec.paused", pickOne(true))],
    statefulsets: [...ofTemplate, generateFieldEdit("spec.serviceName", pickOne("b"))],
    ingresses: [
      generateFieldEdit("spec.ingressClassName", pickOne("web", "inner", undefined)),
      generateFieldEdit("spec.tls", pickOne([{ hosts: ["a.example.com"] }])),
    ],
    jobs: [
      generateFieldEdit("spec.parallelism", mostlyValid(pickOne(0, 1, 2, 5), pickOne(-1))),
      generateFieldEdit("spec.parallelism", pickOne(3, undefined)),
      generateFieldEdit("spec.suspend", fc.boolean()),
    ],
    namespaces: [generateFieldEdit("spec.finalizers", pickOne([], ["kubernetes"]))],
    priorityclasses: [
      generateFieldEdit("globalDefault", pickOne(true, true, false, undefined)),
      generateFieldEdit("description", pickOne("a", undefined)),
      generateFieldEdit("value", pickOne(7)),
    ],
    podgroups: [generateFieldEdit("spec.schedulingPolicy", pickOne({ basic: {} }))],
    localsubjectaccessreviews: [generateFieldEdit("spec.user", pickOne("admin"))],
  };
};

/** Returns generators of edits by kind and subresource. */
const buildSubresources = (
  odds: Odds,
  { image, resources, ephemeralContainers }: Pods,
): Record<GeneratedKind, Record<string, Arbitrary<FieldEdit>>> => {
  const { mostlyValid } = odds;
  const taints = buildTaints(odds);
  const ofWorkload = {
    // The object of this subresource is a Scale. It has the number of replicas at the same path as the workload.
    scale: generateFieldEdit("spec.replicas", mostlyValid(pickOne(0, 1, 5), pickOne(-1))),
    status: generateFieldEdit("status.replicas", mostlyValid(pickOne(1), pickOne(-1))),
  };
  return {
    pods: {
      ephemeralcontainers: fc.oneof(
        generateFieldEdit("spec.ephemeralContainers", ephemeralContainers),
        generateFieldEdit(
          "spec.ephemeralContainers.-",
          ephemeralContainers.map(([first]) => first ?? { name: "e2", image: "debug" }),
        ),
        generateFieldEdit("spec.containers.0.image", image),
      ),
      status: fc.oneof(
        generateFieldEdit("status.phase", mostlyValid(pickOne("Running", "Succeeded"), pickOne("Odd"))),
        generateFieldEdit("status.message", pickOne("a")),
        generateFieldEdit("spec.containers.0.image", image),
      ),
      resize: fc.oneof(
        generateFieldEdit("spec.containers.0.resources", resources),
        generateFieldEdit("spec.containers.0.resources.requests.cpu", pickOne("2", "100m")),
        generateFieldEdit("spec.containers.0.image", image),
      ),
    },
    services: { status: generateFieldEdit("status.loadBalancer", pickOne({ ingress: [{ ip: "192.0.2.7" }] }, {})) },
    configmaps: {},
    persistentvolumeclaims: { status: generateFieldEdit("status.phase", pickOne("Bound", "Lost")) },
    persistentvolumes: { status: generateFieldEdit("status.phase", pickOne("Available", "Released")) },
    nodes: {
      status: fc.oneof(
        generateFieldEdit("status.capacity", pickOne({ cpu: "2" })),
        generateFieldEdit("spec.taints", taints),
      ),
    },
    volumeattributesclasses: {},
    deployments: ofWorkload,
    statefulsets: ofWorkload,
    ingresses: { status: generateFieldEdit("status.loadBalancer", pickOne({ ingress: [{ ip: "192.0.2.7" }] }, {})) },
    jobs: { status: generateFieldEdit("status.active", pickOne(1, 2)) },
    namespaces: { status: generateFieldEdit("status.phase", mostlyValid(pickOne("Active"), pickOne("Odd"))) },
    priorityclasses: {},
    podgroups: {},
    localsubjectaccessreviews: {},
  };
};

/**
 * Returns generators of objects and edits. With `mayBeInvalid`, each part of an object is sometimes invalid. Then
 * hardly any pod is valid, because a pod has so many parts. So comparisons also use generators without `mayBeInvalid`.
 */
export const createObjectGenerators = ({ mayBeInvalid }: Pick<Odds, "mayBeInvalid">) => {
  const odds: Odds = {
    mayBeInvalid,
    mostlyValid: (valid, invalid) =>
      mayBeInvalid ? fc.oneof({ weight: 14, arbitrary: valid }, { weight: 1, arbitrary: invalid }) : valid,
    ifMayBeInvalid: (arbitraries) => (mayBeInvalid ? arbitraries : []),
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

const usualKinds: readonly GeneratedKind[] = [
  "pods",
  "services",
  "persistentvolumeclaims",
  "deployments",
  "statefulsets",
  "ingresses",
  "jobs",
];

/** Generates objects of the kinds that users write most. */
export const createUsualObject = (mayBeInvalid: boolean): Arbitrary<JsonMap> =>
  pickOne(...usualKinds).chain(createObjectGenerators({ mayBeInvalid }).buildObject);
