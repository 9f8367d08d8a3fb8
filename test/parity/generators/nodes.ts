import fc, { type Arbitrary } from "fast-check";
import { exactJson } from "#lib/exact-json.ts";
import type { JsonMap } from "#lib/json.ts";
import type { TestClusterClient, TestClusterRequest } from "../../control-plane/client.ts";
import { generateSigningRequestObject, pickCertificateRequest } from "./certificates.ts";
import {
  assignUser,
  buildDryRunScenario,
  buildPatchStep,
  buildScenario,
  deleteNowStep,
  generateCreateStep,
} from "./scenario-parts.ts";
import {
  addSometimes,
  type FieldEdit,
  generateFieldEdit,
  generateObjects,
  pickOne,
  type RequestSequence,
  type RequestUser,
  requestOptions,
  type SequenceRequest,
} from "./steps.ts";

// Generates writes of kubelets to objects of their own nodes and of other nodes.

const image = "registry.example.com/app:1";
const containers = [{ name: "c0", image }];
const mirror = { "kubernetes.io/config.mirror": "x" };
const claimed = { accessModes: ["ReadWriteOnce"], resources: { requests: { storage: "1Gi" } }, storageClassName: "" };
const buildSlice = (node: JsonMap) => {
  return { driver: "driver.example.com", pool: { name: "p", generation: 1, resourceSliceCount: 1 }, ...node };
};

/** Replaces placeholders for uids of objects in a request's body by the uids that this server generated. */
export const replaceUidPlaceholders = async (
  call: TestClusterRequest,
  admin: TestClusterClient,
): Promise<TestClusterRequest> => {
  let text = exactJson.stringify(call.body ?? null);
  // A placeholder contains the API path of the object, such as "uid of /api/v1/nodes/n1".
  for (const [placeholder, path = ""] of text.matchAll(/"uid of ([^"]+)"/g)) {
    const { body } = await admin({ method: "GET", path });
    text = text.replaceAll(placeholder, JSON.stringify(Object(body.metadata).uid ?? "unknown"));
  }
  return call.body === undefined ? call : { ...call, body: exactJson.parse(text) };
};
/** Returns the placeholder for the uid of the object at this API path. */
const referToUid = (path: string) => `uid of ${path}`;
const referToNodeUid = (name: string) => referToUid(`/api/v1/nodes/${name}`);
const referToPodUid = (name: string) => referToUid(`/api/v1/namespaces/default/pods/${name}`);

const mostlyKubelet = pickOne<RequestUser>(...Array<RequestUser>(8).fill("system:node:n1"), "admin", "jane");
const buildChange = (...edits: Arbitrary<FieldEdit>[]) =>
  assignUser(mostlyKubelet, buildPatchStep(pickOne("merge"), undefined, ...edits));
const buildSubresourceChange = (subresource: string, ...edits: Arbitrary<FieldEdit>[]) =>
  assignUser(mostlyKubelet, buildPatchStep(pickOne("merge"), subresource, ...edits));
const buildCreate = (body: Arbitrary<JsonMap>, subresource?: string) =>
  assignUser(mostlyKubelet, generateCreateStep(body, subresource));
const deletion = assignUser(mostlyKubelet, deleteNowStep);
const deletionOfAll = assignUser(
  mostlyKubelet,
  requestOptions.map((options): SequenceRequest => ({ ...options, verb: "deletecollection" })),
);
const buildKubeletScenario = (
  kind: RequestSequence["kind"],
  body: Arbitrary<JsonMap>,
  changes: Arbitrary<SequenceRequest>[],
  namespace = "default",
) => buildScenario(kind, buildCreate(body), changes, { namespace, last: deleteNowStep });

/** Generates fields of pod specs. Most of them are forbidden in pods that a kubelet creates. */
const podSpecFields = pickOne<JsonMap>(
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
/** Generates owner references, most of which are valid for a mirror pod of node n1. */
const owner = fc
  .record({
    name: pickOne("n1", "n1", "n1", "n1", "n2"),
    uid: pickOne(referToNodeUid("n1"), referToNodeUid("n1"), referToNodeUid("n1"), referToNodeUid("n2"), "1"),
    controller: pickOne(true, true, true, true, false, undefined),
    blockOwnerDeletion: pickOne(undefined, undefined, undefined, false, true),
  })
  .map((owner) => ({ apiVersion: "v1", kind: "Node", ...owner }));
/** Generates mirror pods, which are the only pods that a kubelet may create. Some have faults. */
const mirrorPod = fc
  .record({
    annotations: pickOne<JsonMap>(mirror, mirror, mirror, mirror, mirror, {}),
    ownerReferences: fc.oneof(
      { weight: 9, arbitrary: fc.tuple(owner) },
      { weight: 1, arbitrary: fc.constant([]) },
      { weight: 1, arbitrary: fc.tuple(owner, owner) },
    ),
    nodeName: pickOne("n1", "n1", "n1", "n1", "n1", "n2", undefined),
    fields: podSpecFields,
  })
  .map(({ nodeName, fields, ...metadata }): JsonMap => {
    return { apiVersion: "v1", kind: "Pod", metadata, spec: { containers, ...(nodeName && { nodeName }), ...fields } };
  });

const editLabel = (key: string) =>
  pickOne("a", "b").map((value): FieldEdit => ({ path: ["metadata", "labels", key], value }));
/** Edits sent to a pod's subresource `status`. One of them changes a label, which a kubelet may not do there. */
const statusEdits = [
  generateFieldEdit("status.phase", pickOne("Running", "Failed")),
  generateFieldEdit("status.message", pickOne("a", "b")),
  editLabel("app"),
  generateFieldEdit(
    "status.resourceClaimStatuses",
    pickOne([{ name: "r", resourceClaimName: "c" }], [{ name: "r" }], []),
  ),
  generateFieldEdit(
    "status.extendedResourceClaimStatus",
    pickOne({ resourceClaimName: "c", requestMappings: [] }, undefined),
  ),
  generateFieldEdit(
    "status.nodeAllocatableResourceClaimStatuses",
    pickOne([{ resourceClaimName: "c", containers: ["c0"], mapping: [{ name: "memory", quantity: "1Gi" }] }], []),
  ),
];
const eviction = buildCreate(pickOne({ apiVersion: "policy/v1", kind: "Eviction" }), "eviction");
const binding = buildCreate(
  pickOne({ apiVersion: "v1", kind: "Binding", target: { apiVersion: "v1", kind: "Node", name: "n1" } }),
  "binding",
);
const podChanges = [
  buildChange(editLabel("app")),
  buildSubresourceChange("status", ...statusEdits),
  eviction,
  deletion,
  deletionOfAll,
];

/** Keys of labels. A kubelet may set only some of them on its Node. */
const labelKeys = [
  "pool",
  "example.com/a",
  "node-restriction.kubernetes.io/a",
  "x.node-restriction.kubernetes.io/a",
  "kubernetes.io/hostname",
  "kubernetes.io/role",
  "k8s.io/a",
  "x.k8s.io/a",
  "a.node.kubernetes.io/b",
  "notk8s.io/a",
  "kubelet.kubernetes.io/a",
  "topology.kubernetes.io/zone",
  "topology.kubernetes.io/rack",
  "rack",
];
const configSource = { configMap: { name: "a", namespace: "b", kubeletConfigKey: "c" } };
const node = generateObjects({
  metadata: generateObjects({
    labels: addSometimes(fc.dictionary(pickOne(...labelKeys), pickOne("a", "b"), { maxKeys: 3 }), "in 2 of 3"),
  }),
  spec: addSometimes(
    pickOne<JsonMap>({ taints: [{ key: "t", effect: "NoSchedule" }] }, { configSource }, { podCIDR: "10.1.0.0/24" }),
  ),
}).map((rest) => ({ apiVersion: "v1", kind: "Node", metadata: {}, ...rest }));
/** Edits of a Node. A kubelet may make only some of them. */
const nodeChanges = [
  ...labelKeys.map(editLabel),
  generateFieldEdit("metadata.labels", pickOne(undefined)),
  generateFieldEdit("spec.taints", pickOne([{ key: "t", effect: "NoSchedule" }], [], undefined)),
  generateFieldEdit("spec.unschedulable", fc.boolean()),
  generateFieldEdit("spec.configSource", pickOne(configSource)),
  generateFieldEdit(
    "metadata.ownerReferences",
    pickOne([{ apiVersion: "v1", kind: "Node", name: "n2", uid: referToNodeUid("n2") }], []),
  ),
  generateFieldEdit("status.capacity", pickOne({ cpu: "1" }, { cpu: "2" })),
  generateFieldEdit("status.phase", pickOne("Running")),
];

/** Generates requests for tokens of a ServiceAccount, most of them for a pod on node n1. */
const token = fc
  .record({
    audiences: pickOne<string[] | undefined>(
      undefined,
      undefined,
      ["vault"],
      ["driver"],
      ["disk"],
      ["azure"],
      ["aws"],
      ["other"],
      ["https://kubernetes.default.svc"],
      ["special"],
      ["vault", "disk"],
      [""],
      [],
    ),
    name: pickOne("on-n1", "on-n1", "on-n1", "plain-on-n1", "broken-on-n1", "on-n2", "gone"),
    hasOtherUid: pickOne(false, false, false, false, true),
    changes: pickOne<JsonMap>(
      {},
      {},
      {},
      {},
      {},
      { uid: undefined },
      { kind: "Node", name: "n1" },
      { apiVersion: "v2" },
    ),
    isBound: pickOne(true, true, true, true, true, true, true, false),
  })
  .map(({ audiences, name, hasOtherUid, changes, isBound }): JsonMap => {
    const uid = referToPodUid(hasOtherUid ? "on-n2" : name);
    const boundObjectRef = { apiVersion: "v1", kind: "Pod", name, uid, ...changes };
    const spec = { ...(audiences && { audiences }), ...(isBound && { boundObjectRef }) };
    return { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", metadata: {}, spec };
  });

const lease = pickOne({ apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata: {}, spec: {} });
const renewal = buildChange(generateFieldEdit("spec.holderIdentity", pickOne("n1", "n2")), editLabel("app"));
const csiNode = pickOne({ apiVersion: "storage.k8s.io/v1", kind: "CSINode", metadata: {}, spec: { drivers: [] } });
const resourceSlice = pickOne<JsonMap>(
  { nodeName: "n1" },
  { nodeName: "n1" },
  { nodeName: "n2" },
  { allNodes: true },
).map((node) => ({
  apiVersion: "resource.k8s.io/v1",
  kind: "ResourceSlice",
  metadata: {},
  spec: buildSlice(node),
}));

/**
 * Generates requests for the certificate of a pod, most of them for a pod on node n1. `shown-on-n1` is a mirror pod,
 * `plain-on-n1` has no service account, and `gone` doesn't exist.
 */
const podCertificate = fc
  .record({
    nodeName: pickOne("n1", "n1", "n1", "n1", "n1", "n2"),
    nodeUID: pickOne(
      referToNodeUid("n1"),
      referToNodeUid("n1"),
      referToNodeUid("n1"),
      referToNodeUid("n1"),
      referToNodeUid("n2"),
    ),
    podName: pickOne("on-n1", "on-n1", "on-n1", "plain-on-n1", "shown-on-n1", "on-n2", "gone"),
    hasOtherUid: pickOne(false, false, false, false, true),
    serviceAccountName: pickOne("default", "default", "default", "missing", "other"),
    accountOfUid: pickOne("default", "default", "default", "quiet"),
    signerName: pickOne("example.com/one", "example.com/one", "example.com/two", "example.com/three"),
  })
  .map(({ hasOtherUid, accountOfUid, ...spec }): JsonMap => {
    // The service account `quiet` is in the namespace `accounted`.
    const namespace = accountOfUid === "quiet" ? "accounted" : "default";
    const serviceAccountUID = referToUid(`/api/v1/namespaces/${namespace}/serviceaccounts/${accountOfUid}`);
    const uids = { podUID: referToPodUid(hasOtherUid ? "on-n2" : spec.podName), serviceAccountUID };
    return {
      apiVersion: "certificates.k8s.io/v1beta1",
      kind: "PodCertificateRequest",
      metadata: {},
      spec: { ...spec, ...uids, maxExpirationSeconds: 3600 },
    };
  });

const [serving, client] = ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];

/** Scenarios for NodeRestriction and the certificate plugins, by name. */
export const nodeScenarios = {
  mirrors: buildKubeletScenario("pods", mirrorPod, podChanges),
  kubeletsPods: buildDryRunScenario("pods", ["on-n1", "on-n1", "on-n2", "shown-on-n1"], [...podChanges, binding]),
  kubeletsNodes: fc.oneof(
    buildKubeletScenario("nodes", node, [
      buildChange(...nodeChanges),
      buildSubresourceChange("status", ...nodeChanges),
    ]),
    // This scenario stands here twice, so that it is chosen twice as often.
    ...[0, 1].map(() =>
      buildDryRunScenario(
        "nodes",
        ["n1", "n1", "n1", "n2"],
        [buildCreate(node), buildChange(...nodeChanges), buildSubresourceChange("status", ...nodeChanges), deletion],
      ),
    ),
  ),
  kubeletsClaims: buildDryRunScenario(
    "persistentvolumeclaims",
    ["bound-fast", "on-disk"],
    [
      buildCreate(pickOne({ apiVersion: "v1", kind: "PersistentVolumeClaim", metadata: {}, spec: claimed })),
      buildChange(editLabel("app")),
      // This change stands here three times, so that it is chosen more often.
      ...[0, 1, 2].map(() =>
        buildSubresourceChange(
          "status",
          generateFieldEdit("status.capacity.storage", pickOne("2Gi", "3Gi")),
          generateFieldEdit("status.conditions", pickOne([{ type: "Resizing", status: "True" }])),
          generateFieldEdit("status.allocatedResources", pickOne({ storage: "2Gi" })),
          generateFieldEdit("status.allocatedResourceStatuses", pickOne({ storage: "NodeResizePending" })),
          generateFieldEdit("status.phase", pickOne("Lost")),
          generateFieldEdit("spec.volumeName", pickOne("other")),
          generateFieldEdit("metadata.finalizers", pickOne(["example.com/keep"])),
          editLabel("app"),
        ),
      ),
    ],
  ),
  kubeletsTokens: buildDryRunScenario("serviceaccounts", ["default"], [buildCreate(token, "token")]),
  kubeletsLeases: fc.oneof(
    buildDryRunScenario(
      "leases",
      ["n1", "n1", "n2"],
      [buildCreate(lease), renewal, renewal, deletion],
      "kube-node-lease",
    ),
    buildKubeletScenario("leases", lease, [renewal, deletion, deletionOfAll], "kube-node-lease"),
    buildKubeletScenario("leases", lease, [renewal]),
  ),
  kubeletsDevices: fc.oneof(
    buildDryRunScenario(
      "csinodes",
      ["n1", "n2"],
      [
        buildCreate(csiNode),
        buildChange(editLabel("app")),
        buildSubresourceChange("status", editLabel("app")),
        deletion,
      ],
    ),
    buildKubeletScenario("csinodes", csiNode, [deletion]),
    buildKubeletScenario("resourceslices", resourceSlice, [buildChange(editLabel("app")), deletion, deletionOfAll]),
    buildDryRunScenario("resourceslices", ["slice-n1", "slice-n2"], [buildChange(editLabel("app")), deletion]),
  ),
  kubeletsCertificates: fc.oneof(
    buildKubeletScenario(
      "certificatesigningrequests",
      generateSigningRequestObject(
        pickOne(serving, client, client, "example.com/one"),
        pickCertificateRequest("node", "node", "otherNode", "twoNodes", "plain", "noPem", "certificate", "cut"),
      ),
      [buildSubresourceChange("approval", editLabel("app"))],
    ),
    buildKubeletScenario("podcertificaterequests", podCertificate, [buildChange(editLabel("app"))]),
    buildKubeletScenario("podcertificaterequests", podCertificate, [
      buildSubresourceChange("status", editLabel("app")),
      deletion,
    ]),
  ),
} satisfies Record<string, Arbitrary<RequestSequence>>;
