import { spoil } from "../../../infra/parity/generator.ts";
import type { Fields } from "../../../infra/parity/requests.ts";
import {
  claim,
  claims,
  create,
  image,
  label,
  limits,
  lost,
  node,
  nodes,
  patch,
  pod,
  pods,
  remove,
  requests,
  role,
  type Scenario,
  service,
  services,
  tolerating,
} from "../../../infra/parity/steps.ts";

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
const never = (name: string, image: string) => ({ name, image, imagePullPolicy: "Never" });
const gpu = "example.com/gpu";

export const requestScenarios: Record<string, Scenario[]> = {
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
};
