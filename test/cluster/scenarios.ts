import type { Call } from "./client.ts";

/** Requests one after another, the same to every server. Each is judged, and what it leaves is compared. */
export interface Scenario {
  name: string;
  calls: Call[];
}

type Fields = Record<string, unknown>;

const pods = "/api/v1/namespaces/default/pods";
const services = "/api/v1/namespaces/default/services";
const claims = "/api/v1/namespaces/default/persistentvolumeclaims";
const image = "registry.example.com/app:1";

const pod = (name: string, spec: Fields = {}, metadata: Fields = { name }) => {
  return { apiVersion: "v1", kind: "Pod", metadata, spec: { containers: [{ name: "a", image }], ...spec } };
};
const create = (path: string, body: unknown): Call => ({ method: "POST", path, body });
const patch = (path: string, body: unknown, type = "strategic-merge-patch"): Call => {
  return { method: "PATCH", path, body, contentType: `application/${type}+json` };
};

/** One pod each, created and deleted. */
const podSpecs: [string, Fields][] = [
  ["a plain pod", {}],
  ["a pod that never pulls", { containers: [{ name: "a", image, imagePullPolicy: "Never" }] }],
  ["a pod with init containers", { initContainers: [{ name: "i", image, imagePullPolicy: "IfNotPresent" }] }],
  ["a pod with an image volume", { volumes: [{ name: "v", image: { reference: image, pullPolicy: "Never" } }] }],
  ...[
    { operator: "Exists" },
    { operator: "Exists", effect: "NoSchedule" },
    { operator: "Exists", effect: "NoExecute" },
    { key: "node.kubernetes.io/not-ready", operator: "Exists", effect: "NoExecute", tolerationSeconds: 5 },
    { key: "node.kubernetes.io/unreachable", operator: "Equal", value: "x" },
    { key: "node.kubernetes.io/unreachable", operator: "Exists", effect: "PreferNoSchedule" },
    { key: "a.example.com/gpu", operator: "Exists", effect: "NoSchedule" },
  ].map((toleration): [string, Fields] => [
    `a pod tolerating ${JSON.stringify(toleration)}`,
    { tolerations: [toleration] },
  ]),
  [
    "a pod with extended resources",
    {
      tolerations: [{ key: "a.example.com/gpu", operator: "Exists", effect: "NoSchedule" }],
      initContainers: [{ name: "i", image, resources: { limits: { "b.example.com/z": "1" } } }],
      containers: [{ name: "a", image, resources: { limits: { "a.example.com/gpu": "2", cpu: "1" } } }],
    },
  ],
  ...["kubernetes.io/hostname", "topology.kubernetes.io/zone"].flatMap((topologyKey): [string, Fields][] => {
    const term = { topologyKey, labelSelector: { matchLabels: { app: "a" } } };
    const preferred = [{ weight: 1, podAffinityTerm: term }];
    return [
      [
        `a pod that must be apart by ${topologyKey}`,
        { affinity: { podAntiAffinity: { requiredDuringSchedulingIgnoredDuringExecution: [term] } } },
      ],
      [
        `a pod that would be apart by ${topologyKey}`,
        { affinity: { podAntiAffinity: { preferredDuringSchedulingIgnoredDuringExecution: preferred } } },
      ],
      [
        `a pod that must be together by ${topologyKey}`,
        { affinity: { podAffinity: { requiredDuringSchedulingIgnoredDuringExecution: [term] } } },
      ],
    ];
  }),
];

const zoned = {
  affinity: {
    podAntiAffinity: {
      requiredDuringSchedulingIgnoredDuringExecution: [
        { topologyKey: "kubernetes.io/hostname", labelSelector: {} },
        { topologyKey: "zone", labelSelector: {} },
        { topologyKey: "rack", labelSelector: {} },
      ],
    },
  },
};

const taints: [string, unknown][] = [
  ["no taint", undefined],
  ["another taint", [{ key: "dedicated", value: "x", effect: "NoSchedule" }]],
  ["the taint, with a value", [{ key: "node.kubernetes.io/not-ready", value: "x", effect: "NoSchedule" }]],
  ["the taint that also evicts", [{ key: "node.kubernetes.io/not-ready", effect: "NoExecute" }]],
];

const service = (name: string, externalIPs?: string[]) => {
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name },
    spec: { ports: [{ port: 80 }], ...(externalIPs && { externalIPs }) },
  };
};
const claim = (name: string, finalizers?: string[]) => {
  const spec = { accessModes: ["ReadWriteOnce"], resources: { requests: { storage: "1Gi" } } };
  return {
    apiVersion: "v1",
    kind: "PersistentVolumeClaim",
    metadata: { name, ...(finalizers && { finalizers }) },
    spec,
  };
};

export const scenarios: Scenario[] = [
  ...podSpecs.map(([name, spec], index) => ({
    name,
    calls: [
      create(`${pods}?dryRun=All`, pod(`spec-${index}`, spec)),
      create(pods, pod(`spec-${index}`, spec)),
      patch(`${pods}/spec-${index}`, { metadata: { labels: { touched: "yes" } } }),
      { method: "DELETE" as const, path: `${pods}/spec-${index}?gracePeriodSeconds=0` },
    ],
  })),
  { name: "a pod of which the first offence is named", calls: [create(pods, pod("zoned", zoned))] },
  {
    name: "a pod whose name is made",
    calls: [
      create(pods, pod("", {}, { generateName: "made-" })),
      create(pods, pod("", zoned, { generateName: "made-" })),
    ],
  },
  {
    name: "a pod that isn't valid",
    calls: [create(pods, pod("Not_Valid", {})), create(pods, pod("empty", { containers: [] }))],
  },
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
      patch(`${pods}/images`, [{ op: "replace", path: "/spec/containers/1/image", value: `${image}.2` }], "json-patch"),
      patch(`${pods}/images/ephemeralcontainers`, {
        spec: { ephemeralContainers: [{ name: "e", image: "debug", imagePullPolicy: "Never" }] },
      }),
      patch(`${pods}/images`, { spec: { containers: [{ name: "b", image: `${image}.3` }] } }),
    ],
  },
  {
    name: "a pod that is applied",
    calls: [
      {
        ...patch(`${pods}/applied?fieldManager=test`, pod("applied"), "apply-patch"),
        contentType: "application/apply-patch+yaml",
      },
      {
        ...patch(
          `${pods}/applied?fieldManager=test`,
          pod("applied", {}, { name: "applied", labels: { a: "b" } }),
          "apply-patch",
        ),
        contentType: "application/apply-patch+yaml",
      },
    ],
  },
  ...taints.map(([name, taints], index) => ({
    name: `a node with ${name}`,
    calls: [
      create("/api/v1/nodes", {
        apiVersion: "v1",
        kind: "Node",
        metadata: { name: `node-${index}` },
        spec: { taints },
      }),
    ],
  })),
  {
    name: "volumes, claims and attributes classes",
    calls: [
      create(claims, claim("claim")),
      create(claims, claim("kept", ["example.com/keep"])),
      create(claims, claim("protected", ["kubernetes.io/pvc-protection", "example.com/keep"])),
      create("/api/v1/persistentvolumes", {
        apiVersion: "v1",
        kind: "PersistentVolume",
        metadata: { name: "volume" },
        spec: { capacity: { storage: "1Gi" }, accessModes: ["ReadWriteOnce"], hostPath: { path: "/x" } },
      }),
      create("/apis/storage.k8s.io/v1/volumeattributesclasses", {
        apiVersion: "storage.k8s.io/v1",
        kind: "VolumeAttributesClass",
        metadata: { name: "class" },
        driverName: "example.com",
        parameters: { a: "b" },
      }),
    ],
  },
  {
    name: "services that come by external IPs",
    calls: [
      create(services, service("plain")),
      create(services, service("external", ["192.0.2.1"])),
      create(services, service("emptied", [])),
      patch(`${services}/plain`, { spec: { externalIPs: ["192.0.2.1"] } }, "merge-patch"),
      patch(`${services}/plain`, { metadata: { labels: { a: "b" } } }, "merge-patch"),
    ],
  },
];
