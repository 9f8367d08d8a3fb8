import { getOwn, isMap, isSame, toMap } from "postern/json";
import type { CertificateSigningRequest } from "postern/kubernetes/certificates/v1";
import type { PersistentVolumeClaim } from "postern/kubernetes/core/v1";
import type { CSINode } from "postern/kubernetes/storage/v1";
import { parseCertificateSubject } from "postern/objects/certificates/certificate-request";
import type { KubernetesObject } from "postern/review";
import { type KubeletOffence, type KubeletRequestContext, nodeUserPrefix, quoteText } from "./kubelet.ts";

const hasNameOf = (node: string, { metadata }: KubernetesObject, { request }: KubeletRequestContext) =>
  (request.operation === "CREATE" ? metadata?.name : request.name) === node;

/** Returns why a kubelet may not send this request about a Lease; undefined if it may. */
export const checkLease = (lease: KubernetesObject, context: KubeletRequestContext): KubeletOffence => {
  if (context.request.namespace !== "kube-node-lease")
    return 'can only access leases in the "kube-node-lease" system namespace';
  if (!hasNameOf(context.node, lease, context))
    return "can only access node lease with the same name as the requesting node";
};

/** Returns why a kubelet may not write this CSINode; undefined if it may. */
export const checkCsiNode = (csiNode: CSINode, context: KubeletRequestContext<CSINode>): KubeletOffence => {
  const { node, request, settings, oldObject } = context;
  if (!hasNameOf(node, csiNode, context)) return "can only access CSINode with the same name as the requesting node";
  if (request.subResource !== "status") return;
  if (!settings.csiVolumeHealth) return "CSIVolumeHealth feature gate is disabled";
  if (!isSame(csiNode.spec?.drivers ?? [], oldObject?.spec?.drivers ?? []))
    return `node ${quoteText(node)} is not allowed to modify CSINode spec via status`;
};

/** Updates are allowed here: the node authorizer checks them, and they can't change `nodeName`. */
export const checkResourceSlice = (
  slice: KubernetesObject & { spec?: { nodeName?: string } },
  { node, request: { operation } }: KubeletRequestContext,
): KubeletOffence =>
  operation === "UPDATE" || slice.spec?.nodeName === node
    ? undefined
    : `can only ${operation.toLowerCase()} ResourceSlice with the same NodeName as the requesting node`;

/** The signers of certificates for kubelets. */
const signers = ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];

/** Returns why a kubelet may not request this certificate for its node; undefined if it may. */
export const checkSigningRequest = (
  { spec }: CertificateSigningRequest,
  { node, request, settings }: KubeletRequestContext,
): KubeletOffence => {
  if (settings.allowInsecureKubeletCertificateSigningRequests || request.operation !== "CREATE" || request.subResource)
    return;
  if (!signers.includes(spec?.signerName ?? "")) return;
  const parsed = parseCertificateSubject(spec?.request);
  if ("fault" in parsed) return `unable to parse csr: ${parsed.fault}`;
  if (parsed.subject.commonName !== nodeUserPrefix + node)
    return `can only create a node CSR with CN=${nodeUserPrefix}${node}`;
};

/** Allows only changes of a claim's status that report that its volume was enlarged. */
export const checkKubeletClaimUpdate = (
  claim: PersistentVolumeClaim,
  { node, request, oldObject, settings }: KubeletRequestContext,
): KubeletOffence => {
  if (request.subResource !== "status") return "may only update PVC status";
  if (request.operation !== "UPDATE") return `unexpected operation ${quoteText(request.operation)}`;
  const allowedFields = settings.recoverVolumeExpansionFailure ? [...freeFields, ...recoveryFields] : freeFields;
  const changed = listChangedPaths(oldObject, claim, "", allowedFields);
  if (changed.length > 0)
    return `node ${quoteText(node)} is not allowed to update fields other than status.quantity and status.conditions: ${changed.join(", ")}`;
};

/** The fields of a claim that a kubelet may change. */
const freeFields = ["metadata.resourceVersion", "metadata.managedFields", "status.capacity", "status.conditions"];
/** The fields that a kubelet may also change to report that an expansion failed. */
const recoveryFields = ["status.allocatedResources", "status.allocatedResourceStatuses"];

/**
 * Returns the paths of changed values, except at `allowedPaths`. Values there are not compared, because one of them,
 * managedFields, may be too deeply nested for a recursion.
 */
const listChangedPaths = (before: unknown, after: unknown, path: string, allowedPaths: readonly string[]): string[] => {
  if (allowedPaths.includes(path)) return [];
  if (!isMap(before ?? {}) || !isMap(after ?? {})) return isSame(before, after) ? [] : [path];
  const left = toMap(before);
  const right = toMap(after);
  const keys = new Set([...Object.keys(left), ...Object.keys(right)]);
  return [...keys].flatMap((key) =>
    listChangedPaths(getOwn(left, key), getOwn(right, key), path ? `${path}.${key}` : key, allowedPaths),
  );
};
