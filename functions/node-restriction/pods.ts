import { isSame } from "postern/json";
import type { NodeAllocatableResourceClaimStatus, Pod } from "postern/kubernetes/core/v1";
import { isMirrorPod } from "postern/objects/pod";
import { requireQuantity } from "postern/objects/quantity";
import { notFound } from "postern/refusals";
import type { KubernetesObject } from "postern/review";
import { type KubeletOffence, type KubeletRequestContext, quoteText } from "./kubelet.ts";

/** Returns why a kubelet may not send this request about a pod or a subresource of a pod; undefined if it may. */
export const checkPod = (pod: Pod, context: KubeletRequestContext<Pod>): KubeletOffence | Promise<KubeletOffence> => {
  const { operation, subResource = "" } = context.request;
  if (subResource === "status") return checkStatus(pod, context);
  if (subResource === "eviction") return checkEviction(pod, context);
  if (subResource !== "")
    return `unexpected pod subresource ${quoteText(subResource)}, only 'status' and 'eviction' are allowed`;
  if (operation === "CREATE") return checkMirrorPod(pod, context);
  if (operation === "DELETE") return checkDeletion(context);
  return `unexpected operation ${quoteText(operation)}, node ${quoteText(context.node)} can only create and delete mirror pods`;
};

/** Checks a mirror pod, which represents a static pod of the node; it must not reference API objects. */
const checkMirrorPod = async (pod: Pod, { node, upstream, nodes }: KubeletRequestContext): Promise<KubeletOffence> => {
  const subject = `node ${quoteText(node)}`;
  if (!isMirrorPod(pod))
    return `pod does not have "kubernetes.io/config.mirror" annotation, ${subject} can only create mirror pods`;
  if (pod.spec?.nodeName !== node) return `${subject} can only create pods with spec.nodeName set to itself`;

  const [owner, ...more] = pod.metadata?.ownerReferences ?? [];
  if (more.length > 0) return `${subject} can only create pods with a single owner reference set to itself`;
  if (owner?.apiVersion !== "v1" || owner.kind !== "Node" || owner.name !== node)
    return `${subject} can only create pods with an owner reference set to itself`;
  if (!owner.controller) return `${subject} can only create pods with a controller owner reference set to itself`;
  if (owner.blockOwnerDeletion) return `${subject} must not set blockOwnerDeletion on an owner reference`;
  const found = await nodes({ name: node });
  if (!found) return notFound({ group: "", resource: "node" }, node);
  // The message omits the real UID, which upstream prints: the sender of a forged review must not learn it.
  if (owner.uid !== found.metadata?.uid) return `node ${node} UID mismatch: expected ${owner.uid ?? ""} got another`;
  const { what, unknown } = upstream.findReference(pod) ?? {};
  if (unknown) return `error checking mirror pod for API references: ${unknown}`;
  if (what) return `${subject} can not create pods that reference ${what}`;
};

const checkDeletion = async ({ node, request, pods }: KubeletRequestContext): Promise<KubeletOffence> => {
  const { name = "", namespace } = request;
  const pod = await pods({ name, namespace });
  if (!pod) return notFound({ group: "", resource: "pod" }, name);
  if (pod.spec?.nodeName !== node)
    return `node ${quoteText(node)} can only delete pods with spec.nodeName set to itself`;
};

/** Returns why a kubelet may not evict this pod; undefined if it may. */
const checkEviction = async (
  { metadata }: KubernetesObject,
  { node, request, pods }: KubeletRequestContext,
): Promise<KubeletOffence> => {
  if (request.operation !== "CREATE") return `unexpected operation ${request.operation}`;
  const name = request.name || metadata?.name;
  if (!name) return "could not determine pod from request data";
  const pod = await pods({ name, namespace: request.namespace });
  if (!pod) return notFound({ group: "", resource: "pod" }, name);
  if (pod.spec?.nodeName !== node) return `node ${node} can only evict pods with spec.nodeName set to itself`;
};

/** Returns why a kubelet may not write this status of a pod; undefined if it may. */
const checkStatus = (pod: Pod, { node, request, upstream, oldObject }: KubeletRequestContext<Pod>): KubeletOffence => {
  if (request.operation !== "UPDATE") return `unexpected operation ${quoteText(request.operation)}`;
  const subject = `node ${quoteText(node)}`;
  if (oldObject?.spec?.nodeName !== node)
    return `${subject} can only update pod status for pods with spec.nodeName set to itself`;
  if (!isSame(pod.metadata?.labels ?? {}, oldObject?.metadata?.labels ?? {}))
    return `${subject} cannot update labels through pod status`;
  const { status } = pod;
  const oldStatus = oldObject?.status;
  if (!isSame(status?.resourceClaimStatuses ?? [], oldStatus?.resourceClaimStatuses ?? []))
    return `${subject} cannot update resource claim statues`;
  if (!isSame(status?.extendedResourceClaimStatus ?? null, oldStatus?.extendedResourceClaimStatus ?? null))
    return `${subject} cannot update extended resource claim status`;
  if (!upstream.protectsNodeClaims) return;
  const [nodeClaims, oldNodeClaims] = [status, oldStatus].map((podStatus) =>
    (podStatus?.nodeAllocatableResourceClaimStatuses ?? []).map(toComparable),
  );
  if (!isSame(nodeClaims, oldNodeClaims)) return `${subject} cannot update node allocatable resource claim statuses`;
};

/** Returns a claim's status with amounts as numbers, because upstream compares them by value: 1 equals 1000m. */
const toComparable = ({
  resourceClaimName,
  containers = [],
  mapping = [],
  overhead = [],
}: NodeAllocatableResourceClaimStatus) => [
  resourceClaimName,
  containers,
  mapping.map(({ name, quantity }) => [name, toNanos(quantity)]),
  overhead.map(({ name, perPod, perContainer }) => [name, toNanos(perPod), toNanos(perContainer)]),
];

const toNanos = (amount: string | undefined) => (amount === undefined ? undefined : requireQuantity(amount).nanos);
