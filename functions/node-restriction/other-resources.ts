import type { CertificateSigningRequest } from "kubernetes-types/certificates/v1.d.ts";
import type { PersistentVolumeClaim } from "kubernetes-types/core/v1.d.ts";
import { getOwn, isSame } from "postern/json";
import { parseCertificateSubject } from "postern/objects/certificate-request";
import type { KubernetesObject } from "postern/review";
import { type Around, type Offence, quoted, userPrefix } from "./kubelet.ts";

const isCalledAs = (node: string, { metadata }: KubernetesObject, { request }: Around) =>
  (request.operation === "CREATE" ? metadata?.name : request.name) === node;

export const admitLease = (lease: KubernetesObject, around: Around): Offence => {
  if (around.request.namespace !== "kube-node-lease")
    return 'can only access leases in the "kube-node-lease" system namespace';
  if (!isCalledAs(around.node, lease, around))
    return "can only access node lease with the same name as the requesting node";
};

export const admitCsiNode = (csiNode: KubernetesObject, around: Around): Offence =>
  isCalledAs(around.node, csiNode, around)
    ? undefined
    : "can only access CSINode with the same name as the requesting node";

export const admitResourceSlice = (
  slice: KubernetesObject & { spec?: { nodeName?: string } },
  { node, request: { operation } }: Around,
): Offence =>
  operation === "UPDATE" || slice.spec?.nodeName === node
    ? undefined
    : `can only ${operation.toLowerCase()} ResourceSlice with the same NodeName as the requesting node`;

const signers = ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];

export const admitSigningRequest = (
  { spec }: CertificateSigningRequest,
  { node, request, settings }: Around,
): Offence => {
  if (settings.allowInsecureKubeletCertificateSigningRequests || request.operation !== "CREATE" || request.subResource)
    return;
  if (!signers.includes(spec?.signerName ?? "")) return;
  const read = parseCertificateSubject(spec?.request);
  if ("fault" in read) return `unable to parse csr: ${read.fault}`;
  if (read.subject.commonName !== userPrefix + node) return `can only create a node CSR with CN=${userPrefix}${node}`;
};

/** A kubelet may only report in a claim's status that it has enlarged the volume. */
export const admitClaim = (claim: PersistentVolumeClaim, { node, request, oldObject, settings }: Around): Offence => {
  if (request.subResource !== "status") return "may only update PVC status";
  if (request.operation !== "UPDATE") return `unexpected operation ${quoted(request.operation)}`;
  const free = settings.recoverVolumeExpansionFailure ? [...always, ...recovering] : always;
  const changed = changes(oldObject, claim, "", free);
  if (changed.length > 0)
    return `node ${quoted(node)} is not allowed to update fields other than status.quantity and status.conditions: ${changed.join(", ")}`;
};

const always = ["metadata.resourceVersion", "metadata.managedFields", "status.capacity", "status.conditions"];
const recovering = ["status.allocatedResources", "status.allocatedResourceStatuses"];

/** Returns the paths that differ. Skips the `free` ones first, because managedFields can be arbitrarily deep. */
const changes = (before: unknown, after: unknown, path: string, free: readonly string[]): string[] => {
  if (free.includes(path)) return [];
  if (!isMap(before ?? {}) || !isMap(after ?? {})) return isSame(before, after) ? [] : [path];
  const [one, other] = [Object(before ?? {}), Object(after ?? {})];
  const keys = new Set([...Object.keys(one), ...Object.keys(other)]);
  return [...keys].flatMap((key) => changes(getOwn(one, key), getOwn(other, key), path ? `${path}.${key}` : key, free));
};

const isMap = (value: unknown) => typeof value === "object" && !Array.isArray(value);
