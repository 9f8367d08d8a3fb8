import type { CertificateSigningRequest } from "kubernetes-types/certificates/v1.d.ts";
import { parseCertificateSubject } from "postern/objects/certificate-request";
import type { KubernetesObject } from "postern/review";
import { type Around, type Offence, userPrefix } from "./kubelet.ts";

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
