import { certificateScenarios } from "./certificates.ts";
import type { Call } from "./client.ts";
import { spoil } from "./generator.ts";
import { nodeScenarios } from "./nodes.ts";
import { podSecurityScenarios } from "./pod-security.ts";
import type { Fields } from "./requests.ts";

/** Requests one after another, the same to every server. Each is judged, and what it leaves is compared. */
export interface Scenario {
  name: string;
  /** Asked while no plugin is on and no rule is called: what was there before. */
  before?: Call[];
  calls: Call[];
}

const pods = "/api/v1/namespaces/default/pods";
const services = "/api/v1/namespaces/default/services";
const claims = "/api/v1/namespaces/default/persistentvolumeclaims";
const nodes = "/api/v1/nodes";
const priorityClasses = "/apis/scheduling.k8s.io/v1/priorityclasses";
const storageClasses = "/apis/storage.k8s.io/v1/storageclasses";
const ingressClasses = "/apis/networking.k8s.io/v1/ingressclasses";
const ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
const podGroups = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups";
const image = "registry.example.com/app:1";
const lost = "node.kubernetes.io/unreachable";

const pod = (name: string, spec: Fields = {}, metadata: Fields = {}) => {
  const containers = [{ name: "a", image }];
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { ...(name && { name }), ...metadata },
    spec: { containers, ...spec },
  };
};
const service = (name: string, externalIPs?: string[]) => {
  const spec = { ports: [{ port: 80 }], ...(externalIPs && { externalIPs }) };
  return { apiVersion: "v1", kind: "Service", metadata: { name }, spec };
};
const claim = (name: string, finalizers?: string[]) => {
  const spec = { accessModes: ["ReadWriteOnce"], resources: { requests: { storage: "1Gi" } } };
  const metadata = { name, ...(finalizers && { finalizers }) };
  return { apiVersion: "v1", kind: "PersistentVolumeClaim", metadata, spec };
};
const node = (name: string, taints?: Fields[]) => {
  return { apiVersion: "v1", kind: "Node", metadata: { name }, spec: { ...(taints && { taints }) } };
};

const protection = "scheduling.k8s.io/podgroup-protection";
const podGroup = (name: string, finalizers: string[]) => {
  const spec = { schedulingPolicy: { basic: {} } };
  return { apiVersion: "scheduling.k8s.io/v1alpha2", kind: "PodGroup", metadata: { name, finalizers }, spec };
};

const create = (path: string, body: unknown): Call => ({ method: "POST", path, body });
const patch = (path: string, body: unknown, type = "strategic-merge-patch+json"): Call => {
  return { method: "PATCH", path, body, contentType: `application/${type}` };
};
const label = (path: string) => patch(path, { metadata: { labels: { touched: "yes" } } });
const remove = (path: string): Call => ({ method: "DELETE", path: `${path}?gracePeriodSeconds=0` });

const api = (group: string, resource: string) => `/apis/${group}/${resource}`;
const within = (namespace: string, resource = "pods") => `/api/v1/namespaces/${namespace}/${resource}`;
const see = (path: string): Call => ({ method: "GET", path });
const as = (username: string, call: Call): Call => ({ ...call, impersonate: { username, groups: [] } });
/** A namespace of its own, with the account that its pods are given. */
const home = (name: string, annotations: Fields = {}): Call[] => [
  create("/api/v1/namespaces", { metadata: { name, annotations } }),
  create(within(name, "serviceaccounts"), { metadata: { name: "default" } }),
];
const annotate = (path: string, annotations: Fields) => patch(path, { metadata: { annotations } }, "merge-patch+json");
const configMap = (name: string) => ({ kind: "ConfigMap", metadata: { name } });
const question = (namespace: string) =>
  create(`/apis/authorization.k8s.io/v1/namespaces/${namespace}/localsubjectaccessreviews`, {
    spec: { user: "jane", resourceAttributes: { namespace, verb: "get", resource: "pods" } },
  });
const using = (...containers: Fields[]) => ({
  containers: containers.map((resources, index) => ({ name: `c${index}`, image, resources })),
});
const limited = (name: string, ...containers: Fields[]) => create(within("limited"), pod(name, using(...containers)));
const sized = (name: string, storage: string, storageClassName = "", annotations: Fields = {}) => {
  const { spec, ...rest } = claim(name);
  return {
    ...rest,
    metadata: { name, annotations },
    spec: { ...spec, storageClassName, resources: { requests: { storage } } },
  };
};
const unclassed = (name: string, metadata: Fields = {}) => {
  const body = claim(name);
  return { ...body, metadata: { ...body.metadata, ...metadata } };
};
const bind = (path: string, storage: string) =>
  patch(`${path}/status`, { status: { phase: "Bound", capacity: { storage } } }, "merge-patch+json");
const grow = (path: string, storage: string) => patch(path, { spec: { resources: { requests: { storage } } } });
const isDefault = (mark: string, value = "true") => ({ annotations: { [`${mark}/is-default-class`]: value } });
const storageClass = (name: string, metadata: Fields = {}, allowVolumeExpansion = false) => {
  return { metadata: { name, ...metadata }, provisioner: "example.com", allowVolumeExpansion };
};
const ingressClass = (name: string, metadata: Fields) => {
  return { metadata: { name, ...metadata }, spec: { controller: "example.com/a" } };
};
const ingress = (name: string, spec: Fields = {}, annotations: Fields = {}) => {
  const defaultBackend = { service: { name: "a", port: { number: 80 } } };
  return { metadata: { name, annotations }, spec: { defaultBackend, ...spec } };
};
const bound = (name: string, to: string, kind = "Node") =>
  create(`${pods}/${name}/binding`, { metadata: { name }, target: { kind, name: to } });
const features = ["InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers"];
/** A node, and what its kubelet says of it. */
const kubelet = (name: string, labels: Fields, status: Fields): Call[] => [
  create(nodes, { metadata: { name, labels }, spec: {} }),
  patch(`${nodes}/${name}/status`, { status }, "merge-patch+json"),
];
const large = { allocatable: { cpu: "8", memory: "8Gi" } };
/** A pod that stands on a node already. */
const placed = (name: string, nodeName: string, spec: Fields = {}) =>
  create(pods, pod(name, { nodeName, containers: [{ name: "a", image, ...requests({ cpu: "1" }) }], ...spec }));
const resize = (name: string, spec: Fields) => patch(`${pods}/${name}/resize`, { spec });
const resizeTo = (name: string, cpu: string) => resize(name, { containers: [{ name: "a", ...requests({ cpu }) }] });
const grouped = (resource: string) => api("scheduling.k8s.io", `v1alpha2/namespaces/grouped/${resource}`);
const gang = { gang: { minCount: 2 } };
const jobs = api("batch", "v1/namespaces/grouped/jobs");
const job = (name: string, podGroupName?: string) => {
  const group = podGroupName !== undefined && { schedulingGroup: { podGroupName } };
  const template = { spec: { restartPolicy: "Never", ...group, containers: [{ name: "a", image }] } };
  return { metadata: { name }, spec: { parallelism: 2, completions: 4, template } };
};
const madeOf = (workloadName: string, podGroupTemplateName: string) => {
  return { podGroupTemplateRef: { workload: { workloadName, podGroupTemplateName } } };
};
const secretOf = (name: string) => ({ valueFrom: { secretKeyRef: { name, key: "k" } } });
const mirror = { annotations: { "kubernetes.io/config.mirror": "x" } };
const accounted = (name: string, spec: Fields = {}, metadata: Fields = {}) =>
  create(within("accounted"), pod(name, spec, metadata));
const strict = (name: string, spec: Fields) => accounted(name, { serviceAccountName: "strict", ...spec });
const owned = (name: string, blockOwnerDeletion?: boolean, owner: Fields = {}) => {
  const reference = { apiVersion: "apps/v1", kind: "Deployment", name: "o", uid: "1", ...owner };
  const ownerReferences = [{ ...reference, ...(blockOwnerDeletion !== undefined && { blockOwnerDeletion }) }];
  return { metadata: { name, ownerReferences } };
};
/** What somebody may do, where all others may do nothing. */
const role = (name: string, user: string, rules: Fields[]): Call[] => [
  create(api(rbac, "v1/clusterroles"), { metadata: { name }, rules }),
  create(api(rbac, "v1/clusterrolebindings"), {
    metadata: { name },
    roleRef: { apiGroup: rbac, kind: "ClusterRole", name },
    subjects: [{ apiGroup: rbac, kind: "User", name: user }],
  }),
];
const rbac = "rbac.authorization.k8s.io";
const selector = "scheduler.alpha.kubernetes.io/node-selector";
const tolerations = (key: "defaultTolerations" | "tolerationsWhitelist", list: Fields[]) => {
  return { [`scheduler.alpha.kubernetes.io/${key}`]: JSON.stringify(list) };
};
const lasting = ["node.kubernetes.io/not-ready", lost].map((key) => ({ key, operator: "Exists" }));

let count = 0;
/** A pod that is tried out, created, labelled and deleted. */
const life = (name: string, spec: Fields): Scenario => {
  const body = pod(`life-${count++}`, spec);
  const path = `${pods}/${body.metadata.name}`;
  return { name, calls: [create(`${pods}?dryRun=All`, body), create(pods, body), label(path), remove(path)] };
};

const required = "requiredDuringSchedulingIgnoredDuringExecution";
const term = (topologyKey: string) => ({ topologyKey, labelSelector: { matchLabels: { app: "a" } } });
const apart = (...keys: string[]) => ({ affinity: { podAntiAffinity: { [required]: keys.map(term) } } });
const requests = (resources: Fields) => ({ resources: { requests: resources } });
const limits = (resources: Fields) => ({ resources: { limits: resources } });
const never = (name: string, image: string) => ({ name, image, imagePullPolicy: "Never" });
const tolerating = (toleration: Fields): [string, Fields] => [
  `a pod tolerating ${JSON.stringify(toleration)}`,
  { tolerations: [toleration] },
];

const gpu = "example.com/gpu";

/** For each port, what its plugin's outcomes depend on. AlwaysDeny leaves nothing to compare others by: its cases do. */
export const scenarios: Record<string, Scenario[]> = {
  ...certificateScenarios,
  ...nodeScenarios,
  ...podSecurityScenarios,
  "always-admit": [
    {
      name: "what comes, changes, and goes",
      calls: [
        create("/api/v1/namespaces/default/configmaps", {
          kind: "ConfigMap",
          metadata: { name: "plain" },
          data: { a: "b" },
        }),
        patch("/api/v1/namespaces/default/configmaps/plain", { data: { a: "c" } }),
        remove("/api/v1/namespaces/default/configmaps/plain"),
      ],
    },
    {
      name: "a command in a pod that runs nowhere",
      before: [create(pods, pod("nowhere"))],
      calls: [create(`${pods}/nowhere/exec?command=sh&stdout=true`, undefined)],
    },
    {
      name: "a pod that isn't valid",
      calls: [create(pods, pod("Not_Valid")), create(pods, pod("empty", { containers: [] }))],
    },
    {
      name: "a pod that is applied",
      calls: [{}, { labels: { a: "b" } }].map((metadata) =>
        patch(`${pods}/applied?fieldManager=test`, pod("applied", {}, metadata), "apply-patch+yaml"),
      ),
    },
  ],

  "limit-pod-hard-anti-affinity-topology": [
    ...["kubernetes.io/hostname", "topology.kubernetes.io/zone"].flatMap((key) => [
      life(`a pod that must be apart by ${key}`, apart(key)),
      life(`a pod that would be apart by ${key}`, {
        affinity: {
          podAntiAffinity: {
            preferredDuringSchedulingIgnoredDuringExecution: [{ weight: 1, podAffinityTerm: term(key) }],
          },
        },
      }),
      life(`a pod that must be together by ${key}`, { affinity: { podAffinity: { [required]: [term(key)] } } }),
    ]),
    life("a pod that chooses its nodes", {
      affinity: {
        nodeAffinity: {
          [required]: { nodeSelectorTerms: [{ matchExpressions: [{ key: "zone", operator: "Exists" }] }] },
        },
      },
    }),
    life("a pod without affinity", {}),
    {
      name: "a pod of which the first offence is named",
      calls: [create(pods, pod("zoned", apart("kubernetes.io/hostname", "zone", "rack")))],
    },
    { name: "a pod that must be apart by nothing", calls: [create(pods, pod("unkeyed", apart("")))] },
    {
      name: "a pod whose name is made",
      calls: [{}, apart("zone")].map((spec) => create(pods, pod("", spec, { generateName: "made-" }))),
    },
    {
      name: "a pod that was apart by zone before, but for its subresources",
      before: [
        create(
          pods,
          pod("parted", { ...apart("zone"), containers: [{ name: "a", image, ...requests({ cpu: "1" }) }] }),
        ),
      ],
      calls: [
        label(`${pods}/parted`),
        patch(`${pods}/parted/status`, { status: { message: "here" } }),
        patch(`${pods}/parted/ephemeralcontainers`, { spec: { ephemeralContainers: [{ name: "e", image }] } }),
        patch(`${pods}/parted/resize`, {
          spec: { containers: [{ name: "a", ...requests({ cpu: "2" }) }] },
        }),
        create(`${pods}/parted/binding`, { kind: "Binding", metadata: { name: "parted" }, target: { name: "n" } }),
      ],
    },
  ],

  "taint-nodes-by-condition": [
    ...Object.entries({
      "no taint": undefined,
      "another taint": [{ key: "dedicated", value: "x", effect: "NoSchedule" }],
      "the taint": [{ key: "node.kubernetes.io/not-ready", effect: "NoSchedule" }],
      "the taint, with a value": [{ key: "node.kubernetes.io/not-ready", value: "x", effect: "NoSchedule" }],
      "the taint that also evicts": [{ key: "node.kubernetes.io/not-ready", effect: "NoExecute" }],
    }).map(([name, taints], index) => ({
      name: `a node with ${name}`,
      calls: [create(nodes, node(`node-${index}`, taints))],
    })),
    {
      name: "a node that its kubelet makes",
      before: role("kubelet", "system:node:n1", [{ apiGroups: [""], resources: ["nodes"], verbs: ["create"] }]),
      calls: [{ ...create(nodes, node("n1")), impersonate: { username: "system:node:n1", groups: ["system:nodes"] } }],
    },
    {
      name: "a node that was there without the taint",
      before: [create(nodes, node("older"))],
      calls: [label(`${nodes}/older`), patch(`${nodes}/older/status`, { status: { phase: "Running" } })],
    },
  ],

  "always-pull-images": [
    life("a pod that never pulls", { containers: [never("a", image)] }),
    life("a pod with init containers", { initContainers: [{ name: "i", image, imagePullPolicy: "IfNotPresent" }] }),
    life("a pod with image volumes", {
      volumes: [
        { name: "v", image: { reference: image, pullPolicy: "Never" } },
        { name: "w", image: { reference: image } },
        { name: "x", emptyDir: {} },
      ],
    }),
    {
      name: "a pod that gets other images",
      calls: [
        create(
          pods,
          pod("images", {
            containers: [
              { name: "a", image },
              { name: "b", image: `${image}.1` },
            ],
          }),
        ),
        patch(`${pods}/images`, { spec: { containers: [{ name: "a", image: `${image}.1` }] } }),
        patch(
          `${pods}/images`,
          [{ op: "replace", path: "/spec/containers/1/image", value: `${image}.2` }],
          "json-patch+json",
        ),
        patch(`${pods}/images/ephemeralcontainers`, { spec: { ephemeralContainers: [never("e", "debug")] } }),
        patch(`${pods}/images`, { spec: { containers: [{ name: "b", image: `${image}.3` }] } }),
      ],
    },
    {
      name: "a pod that never pulled before, until it brings another image",
      before: [
        create(
          pods,
          pod("older", { initContainers: [never("i", "i")], containers: [never("a", "a"), never("b", "b")] }),
        ),
      ],
      calls: [
        label(`${pods}/older`),
        patch(`${pods}/older`, {
          spec: {
            containers: [
              { name: "a", image: "b" },
              { name: "b", image: "i" },
            ],
          },
        }),
        patch(`${pods}/older`, { spec: { containers: [{ name: "a", image: "a:new" }] } }),
      ],
    },
    {
      name: "pods whose policies somebody changes back",
      calls: [
        pod("spoilt", {
          initContainers: [{ name: "i", image }],
          volumes: [{ name: "v", image: { reference: image } }],
        }),
        pod("spoilt-once"),
      ].map((body) => create(pods, { ...body, metadata: { ...body.metadata, annotations: { [spoil]: "yes" } } })),
    },
  ],

  "default-toleration-seconds": [
    life("a plain pod", {}),
    ...[
      { operator: "Exists" },
      { operator: "Exists", effect: "NoSchedule" },
      { operator: "Exists", effect: "NoExecute" },
      { key: "", operator: "Exists", effect: "" },
      { key: "node.kubernetes.io/not-ready", operator: "Exists", effect: "NoExecute", tolerationSeconds: 5 },
      { key: lost, operator: "Equal", value: "x" },
      { key: lost, operator: "Exists", effect: "PreferNoSchedule" },
      { key: "example.com/other", operator: "Exists", effect: "NoExecute" },
    ].map((toleration) => life(...tolerating(toleration))),
    {
      name: "a pod that was there without tolerations",
      before: [create(pods, pod("intolerant"))],
      calls: [patch(`${pods}/intolerant/status`, { status: { message: "here" } }), label(`${pods}/intolerant`)],
    },
  ],

  "extended-resource-toleration": [
    life("a pod with extended resources", {
      tolerations: [{ key: "a.example.com/gpu", operator: "Exists", effect: "NoSchedule" }],
      initContainers: [{ name: "i", image, ...limits({ "b.example.com/z": "1" }) }],
      containers: [
        { name: "a", image, ...limits({ "c.example.com/z": "1", "a.example.com/gpu": "2", cpu: "1" }) },
        { name: "b", image, ...limits({ "c.example.com/z": "1" }) },
      ],
    }),
    ...["kubernetes.io/batch", "deviceclass.resource.kubernetes.io/x", "requests.example.com/x", "EXAMPLE.com/x"].map(
      (resource) =>
        life(`a pod with ${resource}`, { containers: [{ name: "a", image, ...limits({ [resource]: "1" }) }] }),
    ),
    life("a pod that asks for them as a whole", limits({ [gpu]: "1" })),
    ...[
      { key: gpu, operator: "Exists", effect: "NoSchedule", tolerationSeconds: 5 },
      { key: gpu, effect: "NoSchedule" },
      { key: gpu, operator: "Equal", value: "x", effect: "NoSchedule" },
      { key: gpu, operator: "Exists", effect: "NoExecute" },
      { key: gpu, operator: "Exists" },
      { operator: "Exists" },
    ].map((toleration) => {
      const [name, spec] = tolerating(toleration);
      return life(`${name}, with ${gpu}`, { ...spec, containers: [{ name: "a", image, ...limits({ [gpu]: "1" }) }] });
    }),
    {
      name: "a pod that was there, untolerant, with its resources",
      before: [create(pods, pod("resourceful", { containers: [{ name: "a", image, ...limits({ [gpu]: "1" }) }] }))],
      calls: [
        patch(`${pods}/resourceful/ephemeralcontainers`, { spec: { ephemeralContainers: [{ name: "e", image }] } }),
        label(`${pods}/resourceful`),
      ],
    },
  ],

  "storage-object-in-use-protection": [
    {
      name: "claims, some protected",
      calls: [
        create(claims, claim("claim")),
        create(claims, claim("kept", ["example.com/keep"])),
        create(claims, claim("protected", ["kubernetes.io/pvc-protection", "example.com/keep"])),
        create(claims, claim("confused", ["kubernetes.io/pv-protection"])),
      ],
    },
    {
      name: "volumes",
      calls: [{}, { finalizers: ["kubernetes.io/pv-protection"] }].map((metadata, index) =>
        create("/api/v1/persistentvolumes", {
          apiVersion: "v1",
          kind: "PersistentVolume",
          metadata: { name: `volume-${index}`, ...metadata },
          spec: { capacity: { storage: "1Gi" }, accessModes: ["ReadWriteOnce"], hostPath: { path: "/x" } },
        }),
      ),
    },
    {
      name: "volume attributes classes",
      calls: [{}, { finalizers: ["kubernetes.io/vac-protection"] }].map((metadata, index) =>
        create("/apis/storage.k8s.io/v1/volumeattributesclasses", {
          apiVersion: "storage.k8s.io/v1",
          kind: "VolumeAttributesClass",
          metadata: { name: `class-${index}`, ...metadata },
          driverName: "example.com",
          parameters: { a: "b" },
        }),
      ),
    },
    {
      name: "a claim that was there unprotected",
      before: [create(claims, claim("older"))],
      calls: [label(`${claims}/older`), patch(`${claims}/older/status`, { status: { phase: "Lost" } })],
    },
  ],

  "pod-group-protection": [
    {
      name: "pod groups, some protected",
      calls: [[], ["example.com/keep"], [protection], ["example.com/keep", protection]].map((finalizers, index) =>
        create(podGroups, podGroup(`group-${index}`, finalizers)),
      ),
    },
    {
      name: "a pod group that was there unprotected",
      before: [create(podGroups, podGroup("older", []))],
      calls: [label(`${podGroups}/older`)],
    },
  ],

  "deny-service-external-ips": [
    {
      name: "services that come by external IPs",
      calls: [
        create(services, service("plain")),
        create(services, service("external", ["192.0.2.1"])),
        create(services, service("emptied", [])),
        patch(`${services}/plain`, { spec: { externalIPs: ["192.0.2.1"] } }, "merge-patch+json"),
        label(`${services}/plain`),
      ],
    },
    {
      name: "a service that had external IPs before, as they become others and fewer",
      before: [create(services, service("older", ["192.0.2.1", "192.0.2.2", "2001:db8::1"]))],
      calls: [
        ["192.0.2.1", "192.0.2.2", "2001:db8::1"],
        ["192.0.2.1", "192.0.2.2", "2001:db8::1", "192.0.2.3"],
        ["192.0.2.1", "192.0.2.3"],
        ["2001:0db8::1"],
        ["192.0.2.2", "192.0.2.1"],
        ["192.0.2.2"],
        ["192.0.2.1"],
        [],
        ["192.0.2.2"],
      ].map((externalIPs) =>
        patch(
          `${services}/older`,
          { metadata: { labels: { n: `${externalIPs.length}` } }, spec: { externalIPs } },
          "merge-patch+json",
        ),
      ),
    },
  ],

  "namespace-auto-provision": [
    {
      name: "what is created where no namespace is, and then where it is",
      calls: [
        create(`${within("provided", "configmaps")}?dryRun=All`, configMap("a")),
        see("/api/v1/namespaces/provided"),
        create(within("provided", "configmaps"), configMap("a")),
        see("/api/v1/namespaces/provided"),
        create(within("provided", "configmaps"), configMap("b")),
      ],
    },
    {
      name: "what is refused once its namespace is there",
      calls: [create(within("begun", "configmaps"), configMap("Not_Valid")), see("/api/v1/namespaces/begun")],
    },
    {
      name: "namespaces that can't be",
      calls: ["Shop", "a_b"].map((name) => create(within(name, "configmaps"), configMap("a"))),
    },
    { name: "a question about nowhere", calls: [question("asked"), see("/api/v1/namespaces/asked")] },
    {
      name: "what comes into a namespace that goes",
      before: home("leaving"),
      calls: [remove("/api/v1/namespaces/leaving"), create(within("leaving", "configmaps"), configMap("a"))],
    },
  ],

  "namespace-lifecycle": [
    {
      name: "the namespaces that must last, and others, as they are deleted",
      before: home("transient"),
      calls: ["default", "kube-system", "kube-public", "kube-node-lease", "transient"].map((name) =>
        remove(`/api/v1/namespaces/${name}`),
      ),
    },
    {
      name: "what is created where no namespace is",
      calls: [
        create(within("missing", "configmaps"), configMap("a")),
        create(`${within("missing", "configmaps")}?dryRun=All`, configMap("a")),
        question("missing"),
      ],
    },
    {
      name: "what comes, changes and goes in a namespace that goes",
      before: [...home("ending"), create(within("ending", "configmaps"), configMap("older"))],
      calls: [
        remove("/api/v1/namespaces/ending"),
        create(within("ending", "configmaps"), configMap("a")),
        create(within("ending", "configmaps"), { metadata: { generateName: "made-" } }),
        create(within("ending", "serviceaccounts/default/token"), { spec: { audiences: ["a"] } }),
        label(within("ending", "configmaps/older")),
        question("ending"),
        remove(within("ending", "configmaps/older")),
      ],
    },
  ],

  "namespace-exists": [
    {
      name: "what is created where no namespace is",
      calls: [
        create(within("nothing", "configmaps"), configMap("a")),
        create(within("nothing", "configmaps"), configMap("Not_Valid")),
        question("nothing"),
      ],
    },
    {
      name: "what comes, changes and goes where one is",
      before: home("existing"),
      calls: [
        create(within("existing", "configmaps"), configMap("a")),
        label(within("existing", "configmaps/a")),
        remove(within("existing", "configmaps/a")),
        question("existing"),
      ],
    },
    {
      name: "what comes into a namespace that goes",
      before: home("going"),
      calls: [remove("/api/v1/namespaces/going"), create(within("going", "configmaps"), configMap("a"))],
    },
  ],

  "limit-ranger": [
    {
      name: "pods, within limits and beyond them",
      before: [
        ...home("limited"),
        create(within("limited", "limitranges"), {
          metadata: { name: "all" },
          spec: {
            limits: [
              {
                type: "Container",
                default: { cpu: "500m", memory: "1Gi" },
                defaultRequest: { cpu: "100m" },
                min: { cpu: "50m" },
                max: { cpu: "2", memory: "2Gi" },
                maxLimitRequestRatio: { cpu: "10" },
              },
              { type: "Pod", max: { cpu: "2500m" }, min: { memory: "64Mi" } },
              { type: "PersistentVolumeClaim", min: { storage: "1Gi" }, max: { storage: "5Gi" } },
            ],
          },
        }),
      ],
      calls: [
        limited("plain", {}),
        limited("two", {}, requests({ cpu: "200m" }).resources, limits({ cpu: "400m", memory: "64Mi" }).resources),
        limited("full", { requests: { cpu: "0.1", memory: "1Gi" }, limits: { cpu: "1", memory: "1Gi" } }),
        limited("zero", { requests: { cpu: "0", memory: "1Mi" } }),
        limited("much", limits({ cpu: "3" }).resources),
        limited("little", { requests: { cpu: "10m" } }),
        limited("wide", { requests: { cpu: "100m" }, limits: { cpu: "1500m" } }),
        limited("below", requests({ cpu: "600m" }).resources),
        limited("thin", { requests: { memory: "1Mi" }, limits: { memory: "2Mi" } }),
        limited("together", limits({ cpu: "1500m" }).resources, limits({ cpu: "1500m" }).resources),
        create(
          within("limited"),
          pod("beside", {
            initContainers: [
              { name: "s", image, restartPolicy: "Always", ...limits({ cpu: "1" }) },
              { name: "i", image, ...limits({ cpu: "2" }) },
            ],
          }),
        ),
        create(within("limited"), pod("whole", { resources: { limits: { cpu: "3", memory: "1Gi" } } })),
        create(within("limited"), pod("", using({ requests: { cpu: "10m" } }), { generateName: "made-" })),
        label(`${within("limited")}/plain`),
        patch(`${within("limited")}/plain/resize`, { spec: { containers: [{ name: "a" }] } }),
        patch(`${within("limited")}/full/resize`, { spec: { containers: [{ name: "c0", ...limits({ cpu: "3" }) }] } }),
        patch(`${within("limited")}/full/resize`, {
          spec: { containers: [{ name: "c0", ...limits({ cpu: "0.9" }) }] },
        }),
      ],
    },
    {
      name: "claims, within limits and beyond them, and after those were tightened",
      calls: [
        ...["512Mi", "1Gi", "3Gi", "6Gi"].map((storage, index) =>
          create(within("limited", "persistentvolumeclaims"), sized(`claim-${index}`, storage)),
        ),
        patch(
          `${within("limited", "limitranges")}/all`,
          [{ op: "replace", path: "/spec/limits/2/max/storage", value: "2Gi" }],
          "json-patch+json",
        ),
        ...["claim-1", "claim-2"].map((name) => label(`${within("limited", "persistentvolumeclaims")}/${name}`)),
      ],
    },
  ],

  "service-account": [
    {
      name: "pods with accounts of all sorts",
      before: [
        ...home("accounted"),
        ...[
          { metadata: { name: "quiet" }, automountServiceAccountToken: false },
          { metadata: { name: "pulling" }, imagePullSecrets: [{ name: "pull" }, { name: "other" }] },
          {
            metadata: { name: "strict", annotations: { "kubernetes.io/enforce-mountable-secrets": "true" } },
            secrets: [{ name: "mine" }],
            imagePullSecrets: [{ name: "pull" }],
          },
        ].map((account) => create(within("accounted", "serviceaccounts"), account)),
      ],
      calls: [
        accounted("plain"),
        accounted("quiet", { serviceAccountName: "quiet" }),
        accounted("loud", { serviceAccountName: "quiet", automountServiceAccountToken: true }),
        accounted("older", { serviceAccount: "pulling" }),
        accounted("own", { serviceAccountName: "pulling", imagePullSecrets: [{ name: "own" }] }),
        accounted("lost", { serviceAccountName: "missing" }),
        accounted("mounted", { volumes: [{ name: "kube-api-access-mine", emptyDir: {} }] }),
        accounted("", {}, { generateName: "made-" }),
        label(`${within("accounted")}/plain`),
      ],
    },
    {
      name: "mirror pods",
      calls: [
        accounted("mirror", { nodeName: "n" }, mirror),
        accounted("mirror-account", { nodeName: "n", serviceAccountName: "quiet" }, mirror),
        accounted("mirror-secret", { nodeName: "n", imagePullSecrets: [{ name: "s" }] }, mirror),
        accounted(
          "mirror-volume",
          { nodeName: "n", volumes: [{ name: "v", projected: { sources: [{ secret: { name: "s" } }] } }] },
          mirror,
        ),
      ],
    },
    {
      name: "pods whose account holds them to its secrets",
      calls: [
        strict("volume", { volumes: [{ name: "v", secret: { secretName: "other" } }] }),
        strict("listed", { volumes: [{ name: "v", secret: { secretName: "mine" } }] }),
        strict("projected", { volumes: [{ name: "v", projected: { sources: [{ secret: { name: "other" } }] } }] }),
        strict("variable", { containers: [{ name: "a", image, env: [{ name: "V", ...secretOf("other") }] }] }),
        strict("variables", { containers: [{ name: "a", image, envFrom: [{ secretRef: { name: "other" } }] }] }),
        strict("init", { initContainers: [{ name: "i", image, env: [{ name: "V", ...secretOf("other") }] }] }),
        strict("pull", { imagePullSecrets: [{ name: "pull" }, { name: "other" }] }),
        ...["mine", "other"].map((name) =>
          patch(`${within("accounted")}/listed/ephemeralcontainers`, {
            spec: { ephemeralContainers: [{ name: `e-${name}`, image, env: [{ name: "V", ...secretOf(name) }] }] },
          }),
        ),
      ],
    },
  ],

  "pod-node-selector": [
    {
      name: "pods where their namespace chooses nodes",
      before: [
        ...home("selecting", { [selector]: "env=prod, tier = a" }),
        ...home("selecting-badly", { [selector]: "env in (a)" }),
      ],
      calls: [
        ...[{}, { env: "prod" }, { disk: "ssd" }, { env: "test" }].map((nodeSelector, index) =>
          create(within("selecting"), pod(`selecting-${index}`, { nodeSelector })),
        ),
        create(within("selecting"), pod("", { nodeSelector: { env: "test" } }, { generateName: "made-" })),
        create(within("selecting-badly"), pod("badly")),
        annotate("/api/v1/namespaces/selecting", { [selector]: "" }),
        create(within("selecting"), pod("freely", { nodeSelector: { env: "test" } })),
        label(`${within("selecting")}/freely`),
      ],
    },
  ],

  "pod-toleration-restriction": [
    {
      name: "pods that are given tolerations, until few are allowed",
      before: home("tolerating", tolerations("defaultTolerations", [{ key: "dedicated", operator: "Exists" }])),
      calls: [
        create(within("tolerating"), pod("plain")),
        create(within("tolerating"), pod("burstable", using(requests({ cpu: "1" }).resources))),
        create(
          within("tolerating"),
          pod("narrower", { tolerations: [{ key: "dedicated", operator: "Equal", value: "x", effect: "NoSchedule" }] }),
        ),
        label(`${within("tolerating")}/plain`),
        annotate("/api/v1/namespaces/tolerating", tolerations("tolerationsWhitelist", lasting)),
        create(within("tolerating"), pod("late")),
        label(`${within("tolerating")}/plain`),
        annotate("/api/v1/namespaces/tolerating", {
          ...tolerations("defaultTolerations", []),
          ...tolerations("tolerationsWhitelist", [...lasting, { key: "a", operator: "Exists" }]),
        }),
        ...["a", "b"].map((key) =>
          create(within("tolerating"), pod(`with-${key}`, { tolerations: [{ key, operator: "Exists" }] })),
        ),
        remove(`${within("tolerating")}/plain`),
      ],
    },
  ],

  priority: [
    {
      name: "pods with classes and without, before there is a default one and after",
      before: [
        { metadata: { name: "high" }, value: 1000 },
        { metadata: { name: "polite" }, value: 500, preemptionPolicy: "Never" },
      ].map((one) => create(priorityClasses, one)),
      calls: [
        ...["high", "polite", "missing", "system-node-critical"].map((priorityClassName) =>
          create(pods, pod(`priority-${priorityClassName}`, { priorityClassName })),
        ),
        create(pods, pod("same", { priorityClassName: "high", priority: 1000 })),
        create(pods, pod("other", { priorityClassName: "high", priority: 5 })),
        create(pods, pod("impatient", { priorityClassName: "polite", preemptionPolicy: "PreemptLowerPriority" })),
        create(pods, pod("unclassed", { priority: 5 })),
        patch(`${pods}/same`, [{ op: "remove", path: "/spec/priority" }], "json-patch+json"),
        create(priorityClasses, { metadata: { name: "usual" }, value: 100, globalDefault: true }),
        create(pods, pod("unclassed")),
        create(priorityClasses, { metadata: { name: "second" }, value: 10, globalDefault: true }),
        patch(`${priorityClasses}/high`, { globalDefault: true }, "merge-patch+json"),
        label(`${priorityClasses}/usual`),
        remove(`${priorityClasses}/usual`),
        create(pods, pod("unclassed-again")),
      ],
    },
  ],

  "default-storage-class": [
    {
      name: "claims with classes and without, before there is a default one and after",
      calls: [
        create(claims, unclassed("early")),
        create(storageClasses, storageClass("almost", isDefault("storageclass.kubernetes.io", "yes"))),
        create(claims, unclassed("early-still")),
        create(storageClasses, storageClass("standard", isDefault("storageclass.kubernetes.io"))),
        create(claims, unclassed("defaulted")),
        create(claims, sized("empty", "1Gi")),
        create(claims, sized("named", "1Gi", "gold")),
        create(claims, unclassed("annotated", { annotations: { "volume.beta.kubernetes.io/storage-class": "" } })),
        remove(`${storageClasses}/standard`),
        create(storageClasses, storageClass("older", isDefault("storageclass.beta.kubernetes.io"))),
        create(claims, unclassed("defaulted-again")),
        remove(`${storageClasses}/older`),
      ],
    },
  ],

  "default-ingress-class": [
    {
      name: "ingresses with classes and without, before there is a default one and after",
      calls: [
        create(ingresses, ingress("early")),
        create(ingressClasses, ingressClass("almost", isDefault("ingressclass.kubernetes.io", "yes"))),
        create(ingresses, ingress("early-still")),
        create(ingressClasses, ingressClass("standard", isDefault("ingressclass.kubernetes.io"))),
        create(ingresses, ingress("defaulted")),
        create(ingresses, ingress("named", { ingressClassName: "mine" })),
        create(ingresses, ingress("annotated", {}, { "kubernetes.io/ingress.class": "" })),
        remove(`${ingressClasses}/standard`),
      ],
    },
  ],

  "persistent-volume-claim-resize": [
    {
      name: "claims that grow, by class",
      before: [
        create(storageClasses, storageClass("elastic", {}, true)),
        create(storageClasses, storageClass("rigid")),
        ...["elastic", "rigid", "gone", ""].flatMap((name) => {
          const path = `${claims}/growing-${name || "unclassed"}`;
          return [create(claims, sized(`growing-${name || "unclassed"}`, "1Gi", name)), bind(path, "1Gi")];
        }),
        create(claims, sized("pending", "1Gi", "elastic")),
      ],
      calls: [
        ...["elastic", "rigid", "gone", "unclassed"].map((name) => grow(`${claims}/growing-${name}`, "2Gi")),
        grow(`${claims}/pending`, "2Gi"),
        grow(`${claims}/growing-elastic`, "1.5Gi"),
        label(`${claims}/growing-rigid`),
        annotate(`${claims}/growing-elastic`, { "volume.beta.kubernetes.io/storage-class": "rigid" }),
        grow(`${claims}/growing-elastic`, "3Gi"),
      ],
    },
  ],

  "runtime-class": [
    {
      name: "pods of classes of all sorts",
      before: [
        { metadata: { name: "plain" }, handler: "plain" },
        { metadata: { name: "heavy" }, handler: "heavy", overhead: { podFixed: { cpu: "250m" } } },
        {
          metadata: { name: "picky" },
          handler: "picky",
          scheduling: { nodeSelector: { env: "prod" }, tolerations: [{ key: "dedicated", operator: "Exists" }] },
        },
      ].map((one) => create(api("node.k8s.io", "v1/runtimeclasses"), one)),
      calls: [
        ...["plain", "heavy", "picky", "missing"].map((runtimeClassName) =>
          create(pods, pod(`class-${runtimeClassName}`, { runtimeClassName })),
        ),
        create(pods, pod("as-heavy", { runtimeClassName: "heavy", overhead: { cpu: "0.25" } })),
        create(pods, pod("heavier", { runtimeClassName: "heavy", overhead: { cpu: "1" } })),
        create(pods, pod("burdened", { overhead: { cpu: "1" } })),
        create(pods, pod("plainly-burdened", { runtimeClassName: "plain", overhead: { cpu: "1" } })),
        create(pods, pod("elsewhere", { runtimeClassName: "picky", nodeSelector: { env: "test" } })),
        create(pods, pod("within", { runtimeClassName: "picky", nodeSelector: { env: "prod", disk: "ssd" } })),
        label(`${pods}/class-heavy`),
      ],
    },
  ],

  "pod-topology-labels": [
    {
      name: "pods that come to nodes",
      before: [
        ...kubelet(
          "zoned",
          { "topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1", rack: "k" },
          large,
        ),
        ...kubelet("unzoned", { rack: "k" }, large),
        ...["to-zoned", "to-unzoned", "to-nothing", "to-shelf"].map((name) =>
          create(pods, pod(name, {}, { labels: { app: "a", "topology.kubernetes.io/zone": "mine" } })),
        ),
      ],
      calls: [
        bound("to-zoned", "zoned"),
        see(`${pods}/to-zoned`),
        bound("to-unzoned", "unzoned"),
        see(`${pods}/to-unzoned`),
        bound("to-nothing", "nothing"),
        see(`${pods}/to-nothing`),
        bound("to-shelf", "zoned", "Shelf"),
        ...["zoned", "unzoned", "nothing"].map((nodeName) => create(pods, pod(`on-${nodeName}`, { nodeName }))),
        label(`${pods}/on-zoned`),
      ],
    },
  ],

  "pod-group-workload-exists": [
    {
      name: "pod groups of workloads",
      before: [
        ...home("grouped"),
        create(grouped("workloads"), {
          metadata: { name: "training" },
          spec: { podGroupTemplates: [{ name: "workers", schedulingPolicy: gang }] },
        }),
      ],
      calls: [{}, madeOf("training", "workers"), madeOf("training", "spare"), madeOf("nothing", "workers")].map(
        (made, index) =>
          create(grouped("podgroups"), {
            metadata: { name: `made-${index}` },
            spec: { schedulingPolicy: gang, ...made },
          }),
      ),
    },
  ],

  "job-validation": [
    {
      name: "jobs in groups that become wider",
      before: [
        create(grouped("podgroups"), { metadata: { name: "gang" }, spec: { schedulingPolicy: gang } }),
        create(grouped("podgroups"), { metadata: { name: "loose" }, spec: { schedulingPolicy: { basic: {} } } }),
        ...["gang", "loose", "missing", undefined].map((group) => create(jobs, job(`in-${group ?? "none"}`, group))),
      ],
      calls: [
        ...["gang", "loose", "missing", "none"].map((name) =>
          patch(`${jobs}/in-${name}`, { spec: { parallelism: 3 } }),
        ),
        patch(`${jobs}/in-gang`, { spec: { suspend: true } }),
        label(`${jobs}/in-gang`),
      ],
    },
  ],

  "node-declared-feature-validator": [
    {
      name: "pods that are resized on nodes that can do so and others",
      before: [
        ...kubelet("able", {}, { ...large, declaredFeatures: features }),
        ...kubelet("unable", {}, large),
        ...["able", "unable", "gone"].map((name) =>
          placed(`resized-${name}`, name, {
            resources: { requests: { cpu: "2" } },
            initContainers: [{ name: "i", image, ...requests({ cpu: "1" }) }],
          }),
        ),
      ],
      calls: ["able", "unable", "gone"].flatMap((name) => [
        resizeTo(`resized-${name}`, "1500m"),
        resize(`resized-${name}`, { resources: { requests: { cpu: "3" } } }),
        resize(`resized-${name}`, { initContainers: [{ name: "i", ...requests({ cpu: "2" }) }] }),
        label(`${pods}/resized-${name}`),
      ]),
    },
  ],

  "pod-resize-validator": [
    {
      name: "pods that are resized on nodes of all sizes and systems",
      before: [
        ...kubelet("roomy", { "kubernetes.io/os": "linux" }, large),
        ...kubelet("small", {}, { allocatable: { cpu: "2", memory: "1Gi" } }),
        ...kubelet("windows", { "kubernetes.io/os": "windows" }, large),
        ...kubelet("silent", {}, {}),
        ...["roomy", "small", "windows", "silent", "gone"].map((name) => placed(`grown-${name}`, name)),
        create(pods, pod("grown-nowhere", { containers: [{ name: "a", image, ...requests({ cpu: "1" }) }] })),
      ],
      calls: ["roomy", "small", "windows", "silent", "gone", "nowhere"].flatMap((name) => [
        resizeTo(`grown-${name}`, "3"),
        resizeTo(`grown-${name}`, "500m"),
        label(`${pods}/grown-${name}`),
      ]),
    },
  ],

  "owner-references-permission-enforcement": [
    {
      name: "owners that are set by those who may do little",
      before: [
        ...home("owning"),
        ...role("owner", "jane", [
          { apiGroups: [""], resources: ["configmaps", "services"], verbs: ["get", "create", "update", "patch"] },
          { apiGroups: [""], resources: ["services"], verbs: ["delete"] },
          { apiGroups: ["apps"], resources: ["deployments/finalizers"], resourceNames: ["mine"], verbs: ["update"] },
        ]),
        create(within("owning", "configmaps"), configMap("plain")),
        create(within("owning", "configmaps"), owned("owned", true)),
        create(within("owning", "services"), service("plain")),
      ],
      calls: [
        create(within("owning", "configmaps"), owned("free")),
        create(within("owning", "configmaps"), owned("blocking", true)),
        create(within("owning", "configmaps"), owned("blocking-mine", true, { name: "mine" })),
        create(
          within("owning", "configmaps"),
          owned("blocking-nobody", true, { apiVersion: "example.com/v1", kind: "Nope" }),
        ),
        patch(`${within("owning", "configmaps")}/plain`, owned("plain"), "merge-patch+json"),
        patch(`${within("owning", "configmaps")}/owned`, { metadata: { ownerReferences: [] } }, "merge-patch+json"),
        label(`${within("owning", "configmaps")}/owned`),
        patch(`${within("owning", "services")}/plain`, owned("plain"), "merge-patch+json"),
        patch(`${within("owning", "services")}/plain`, owned("plain", true), "merge-patch+json"),
        patch(`${within("owning", "services")}/plain`, owned("plain", true, { name: "mine" }), "merge-patch+json"),
      ].map((call) => as("jane", call)),
    },
  ],
};
