import fc, { type Arbitrary } from "fast-check";
import type { JsonMap } from "#lib/json.ts";
import type { Call, Client } from "../control-plane/client.ts";
import { requestsAmong, signingRequest } from "./certificates.ts";
import { asked, at, type Edit, maybe, one, type Sequence, type Step, type User, whole } from "./steps.ts";
import { by, creation, patch, removal, story as storyOf, trial } from "./stories.ts";

// What kubelets write, of their own nodes and of others.

const image = "registry.example.com/app:1";
const containers = [{ name: "c0", image }];
const mirror = { "kubernetes.io/config.mirror": "x" };
const claimed = { accessModes: ["ReadWriteOnce"], resources: { requests: { storage: "1Gi" } }, storageClassName: "" };
const slice = (node: JsonMap) => {
  return { driver: "driver.example.com", pool: { name: "p", generation: 1, resourceSliceCount: 1 }, ...node };
};

/** Whose uid is meant by its path, with the uid that a server drew for it. */
export const withUids = async (call: Call, admin: Client): Promise<Call> => {
  let text = JSON.stringify(call.body ?? null);
  for (const [whole, path = ""] of text.matchAll(/"uid of ([^"]+)"/g)) {
    const { body } = await admin({ method: "GET", path });
    text = text.replaceAll(whole, JSON.stringify(Object(body.metadata).uid ?? "unknown"));
  }
  return call.body === undefined ? call : { ...call, body: JSON.parse(text) };
};
const nodeUid = (name: string) => `uid of /api/v1/nodes/${name}`;
const podUid = (name: string) => `uid of /api/v1/namespaces/default/pods/${name}`;

const kubelet = one<User>(...Array<User>(8).fill("system:node:n1"), "admin", "jane");
const change = (subresource: string | undefined, ...edits: Arbitrary<Edit>[]) =>
  by(kubelet, patch(one("merge"), subresource, ...edits));
const create = (body: Arbitrary<JsonMap>, subresource?: string) => by(kubelet, creation(body, subresource));
const deletion = by(kubelet, removal);
const deletions = by(
  kubelet,
  asked.map((asked): Step => ({ ...asked, verb: "deletecollection" })),
);
const story = (kind: Sequence["kind"], body: Arbitrary<JsonMap>, changes: Arbitrary<Step>[], namespace = "default") =>
  storyOf(kind, create(body), changes, { namespace, last: removal });

const taken = one<JsonMap>(
  ...Array<JsonMap>(6).fill({}),
  { serviceAccountName: "default" },
  { imagePullSecrets: [{ name: "s" }] },
  { containers: [{ name: "c0", image, envFrom: [{ configMapRef: { name: "m" } }] }] },
  { resourceClaims: [{ name: "r", resourceClaimName: "r" }] },
  ...[
    { configMap: {} },
    { secret: {} },
    { csi: { driver: "driver.example.com" } },
    { glusterfs: { endpoints: "e", path: "p" } },
    { persistentVolumeClaim: { claimName: "c" } },
    { ephemeral: { volumeClaimTemplate: { spec: claimed } } },
    { azureFile: { secretName: "", shareName: "s" } },
    { projected: { sources: [{ downwardAPI: {} }, { serviceAccountToken: { path: "t" } }] } },
    { projected: { sources: [{ configMap: {} }] } },
    { projected: { sources: [{ secret: {} }] } },
    { projected: { sources: [{ clusterTrustBundle: { name: "b", path: "b" } }] } },
    { projected: { sources: [{ podCertificate: { signerName: "example.com/one", keyType: "ED25519" } }] } },
    { projected: { sources: [{}] } },
    { projected: { sources: [] } },
    { hostPath: { path: "/a" } },
    {},
  ].map((source) => ({ volumes: [{ name: "v", ...source }] })),
);
const owner = fc
  .record({
    name: one("n1", "n1", "n1", "n1", "n2"),
    uid: one(nodeUid("n1"), nodeUid("n1"), nodeUid("n1"), nodeUid("n2"), "1"),
    controller: one(true, true, true, true, false, undefined),
    blockOwnerDeletion: one(undefined, undefined, undefined, false, true),
  })
  .map((owner) => ({ apiVersion: "v1", kind: "Node", ...owner }));
const mirrorPod = fc
  .record({
    annotations: one<JsonMap>(mirror, mirror, mirror, mirror, mirror, {}),
    ownerReferences: fc.oneof(
      { weight: 9, arbitrary: fc.tuple(owner) },
      { weight: 1, arbitrary: fc.constant([]) },
      { weight: 1, arbitrary: fc.tuple(owner, owner) },
    ),
    nodeName: one("n1", "n1", "n1", "n1", "n1", "n2", undefined),
    taken,
  })
  .map(({ nodeName, taken, ...metadata }): JsonMap => {
    return { apiVersion: "v1", kind: "Pod", metadata, spec: { containers, ...(nodeName && { nodeName }), ...taken } };
  });

const label = (key: string) => one("a", "b").map((value): Edit => ({ path: ["metadata", "labels", key], value }));
const status = [
  at("status.phase", one("Running", "Failed")),
  at("status.message", one("a", "b")),
  label("app"),
  at("status.resourceClaimStatuses", one([{ name: "r", resourceClaimName: "c" }], [{ name: "r" }], [])),
  at("status.extendedResourceClaimStatus", one({ resourceClaimName: "c", requestMappings: [] }, undefined)),
];
const eviction = create(one({ apiVersion: "policy/v1", kind: "Eviction" }), "eviction");
const binding = create(
  one({ apiVersion: "v1", kind: "Binding", target: { apiVersion: "v1", kind: "Node", name: "n1" } }),
  "binding",
);
const ofPods = [change(undefined, label("app")), change("status", ...status), eviction, deletion, deletions];

const keys = [
  ...["pool", "example.com/a", "node-restriction.kubernetes.io/a", "x.node-restriction.kubernetes.io/a"],
  ...[
    "kubernetes.io/hostname",
    "kubernetes.io/role",
    "k8s.io/a",
    "x.k8s.io/a",
    "a.node.kubernetes.io/b",
    "notk8s.io/a",
  ],
  ...["kubelet.kubernetes.io/a", "topology.kubernetes.io/zone", "topology.kubernetes.io/rack", "rack"],
];
const configSource = { configMap: { name: "a", namespace: "b", kubeletConfigKey: "c" } };
const node = whole({
  metadata: whole({ labels: maybe(fc.dictionary(one(...keys), one("a", "b"), { maxKeys: 3 }), 2) }),
  spec: maybe(
    one<JsonMap>({ taints: [{ key: "t", effect: "NoSchedule" }] }, { configSource }, { podCIDR: "10.1.0.0/24" }),
  ),
}).map((rest) => ({ apiVersion: "v1", kind: "Node", metadata: {}, ...rest }));
const ofNode = [
  ...keys.map(label),
  at("metadata.labels", one(undefined)),
  at("spec.taints", one([{ key: "t", effect: "NoSchedule" }], [], undefined)),
  at("spec.unschedulable", fc.boolean()),
  at("spec.configSource", one(configSource)),
  at("metadata.ownerReferences", one([{ apiVersion: "v1", kind: "Node", name: "n2", uid: nodeUid("n2") }], [])),
  at("status.capacity", one({ cpu: "1" }, { cpu: "2" })),
  at("status.phase", one("Running")),
];

const token = fc
  .record({
    audiences: one<string[] | undefined>(
      ...[undefined, undefined, ["vault"], ["driver"], ["disk"], ["azure"], ["aws"], ["other"]],
      ...[["https://kubernetes.default.svc"], ["vault", "disk"], [""], []],
    ),
    name: one("on-n1", "on-n1", "on-n1", "plain-on-n1", "broken-on-n1", "on-n2", "gone"),
    stale: one(false, false, false, false, true),
    odd: one<JsonMap>({}, {}, {}, {}, {}, { uid: undefined }, { kind: "Node", name: "n1" }, { apiVersion: "v2" }),
    bound: one(true, true, true, true, true, true, true, false),
  })
  .map(({ audiences, name, stale, odd, bound }): JsonMap => {
    const uid = podUid(stale ? "on-n2" : name);
    const boundObjectRef = { apiVersion: "v1", kind: "Pod", name, uid, ...odd };
    const spec = { ...(audiences && { audiences }), ...(bound && { boundObjectRef }) };
    return { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", metadata: {}, spec };
  });

const lease = one({ apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata: {}, spec: {} });
const renewal = change(undefined, at("spec.holderIdentity", one("n1", "n2")), label("app"));
const csiNode = one({ apiVersion: "storage.k8s.io/v1", kind: "CSINode", metadata: {}, spec: { drivers: [] } });
const offer = one<JsonMap>({ nodeName: "n1" }, { nodeName: "n1" }, { nodeName: "n2" }, { allNodes: true }).map(
  (node) => ({
    apiVersion: "resource.k8s.io/v1",
    kind: "ResourceSlice",
    metadata: {},
    spec: slice(node),
  }),
);

const podCertificate = fc
  .record({
    nodeName: one("n1", "n1", "n1", "n1", "n1", "n2"),
    nodeUID: one(nodeUid("n1"), nodeUid("n1"), nodeUid("n1"), nodeUid("n1"), nodeUid("n2")),
    podName: one("on-n1", "on-n1", "on-n1", "plain-on-n1", "shown-on-n1", "on-n2", "gone"),
    stale: one(false, false, false, false, true),
    serviceAccountName: one("default", "default", "default", "missing", "other"),
    account: one("default", "default", "default", "quiet"),
  })
  .map(({ stale, account, ...spec }): JsonMap => {
    const path = `/api/v1/namespaces/${account === "quiet" ? "accounted" : "default"}/serviceaccounts/${account}`;
    const uids = { podUID: podUid(stale ? "on-n2" : spec.podName), serviceAccountUID: `uid of ${path}` };
    return {
      apiVersion: "certificates.k8s.io/v1beta1",
      kind: "PodCertificateRequest",
      metadata: {},
      spec: { signerName: "example.com/one", ...spec, ...uids, maxExpirationSeconds: 3600 },
    };
  });

const [serving, client] = ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];

export const nodeScenes = {
  mirrors: story("pods", mirrorPod, ofPods),
  kubeletsPods: trial("pods", ["on-n1", "on-n1", "on-n2", "shown-on-n1"], [...ofPods, binding]),
  kubeletsNodes: fc.oneof(
    story("nodes", node, [change(undefined, ...ofNode), change("status", ...ofNode)]),
    ...[0, 1].map(() =>
      trial(
        "nodes",
        ["n1", "n1", "n1", "n2"],
        [create(node), change(undefined, ...ofNode), change("status", ...ofNode), deletion],
      ),
    ),
  ),
  kubeletsClaims: trial(
    "persistentvolumeclaims",
    ["bound-fast", "on-disk"],
    [
      create(one({ apiVersion: "v1", kind: "PersistentVolumeClaim", metadata: {}, spec: claimed })),
      change(undefined, label("app")),
      ...[0, 1, 2].map(() =>
        change(
          "status",
          at("status.capacity.storage", one("2Gi", "3Gi")),
          at("status.conditions", one([{ type: "Resizing", status: "True" }])),
          at("status.allocatedResources", one({ storage: "2Gi" })),
          at("status.allocatedResourceStatuses", one({ storage: "NodeResizePending" })),
          at("status.phase", one("Lost")),
          at("spec.volumeName", one("other")),
          at("metadata.finalizers", one(["example.com/keep"])),
          label("app"),
        ),
      ),
    ],
  ),
  kubeletsTokens: trial("serviceaccounts", ["default"], [create(token, "token")]),
  kubeletsLeases: fc.oneof(
    trial("leases", ["n1", "n1", "n2"], [create(lease), renewal, renewal, deletion], "kube-node-lease"),
    story("leases", lease, [renewal, deletion, deletions], "kube-node-lease"),
    story("leases", lease, [renewal]),
  ),
  kubeletsDevices: fc.oneof(
    trial("csinodes", ["n1", "n2"], [create(csiNode), change(undefined, label("app")), deletion]),
    story("csinodes", csiNode, [deletion]),
    story("resourceslices", offer, [change(undefined, label("app")), deletion, deletions]),
    trial("resourceslices", ["slice-n1", "slice-n2"], [change(undefined, label("app")), deletion]),
  ),
  kubeletsCertificates: fc.oneof(
    story(
      "certificatesigningrequests",
      signingRequest(
        one(serving, client, client, "example.com/one"),
        requestsAmong("node", "node", "otherNode", "twice", "plain", "nothing", "certificate", "cut"),
      ),
      [change("approval", label("app"))],
    ),
    story("podcertificaterequests", podCertificate, [change(undefined, label("app"))]),
    story("podcertificaterequests", podCertificate, [change("status", label("app")), deletion]),
  ),
} satisfies Record<string, Arbitrary<Sequence>>;
