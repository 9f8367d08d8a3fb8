import type { Pod } from "kubernetes-types/core/v1.d.ts";
import { isSame } from "postern/json";
import { isMirror } from "postern/objects/pod";
import { notFound } from "postern/refusals";
import type { KubernetesObject } from "postern/review";
import { type Around, type Offence, quoted } from "./kubelet.ts";
import { referenceIn } from "./pod-references.ts";

export const admitPod = (pod: Pod, around: Around): Offence | Promise<Offence> => {
  const { operation, subResource = "" } = around.request;
  if (subResource === "status") return admitStatus(pod, around);
  if (subResource === "eviction") return admitEviction(pod, around);
  if (subResource !== "")
    return `unexpected pod subresource ${quoted(subResource)}, only 'status' and 'eviction' are allowed`;
  if (operation === "CREATE") return admitMirror(pod, around);
  if (operation === "DELETE") return admitDeletion(around);
  return `unexpected operation ${quoted(operation)}, node ${quoted(around.node)} can only create and delete mirror pods`;
};

/** A mirror pod only represents a static pod, which the node runs by itself; it must not reference API objects. */
const admitMirror = async (pod: Pod, { node, nodes }: Around): Promise<Offence> => {
  const here = `node ${quoted(node)}`;
  if (!isMirror(pod))
    return `pod does not have "kubernetes.io/config.mirror" annotation, ${here} can only create mirror pods`;
  if (pod.spec?.nodeName !== node) return `${here} can only create pods with spec.nodeName set to itself`;

  const [owner, ...more] = pod.metadata?.ownerReferences ?? [];
  if (more.length > 0) return `${here} can only create pods with a single owner reference set to itself`;
  if (owner?.apiVersion !== "v1" || owner.kind !== "Node" || owner.name !== node)
    return `${here} can only create pods with an owner reference set to itself`;
  if (!owner.controller) return `${here} can only create pods with a controller owner reference set to itself`;
  if (owner.blockOwnerDeletion) return `${here} must not set blockOwnerDeletion on an owner reference`;
  const found = await nodes(node);
  if (!found) return notFound({ group: "", resource: "node" }, node);
  // Omits the real UID, which upstream prints: the sender of a forged review must not learn it.
  if (owner.uid !== found.metadata?.uid) return `node ${node} UID mismatch: expected ${owner.uid ?? ""} got another`;

  const { what, unknown } = referenceIn(pod) ?? {};
  if (unknown) return `error checking mirror pod for API references: ${unknown}`;
  if (what) return `${here} can not create pods that reference ${what}`;
};

const admitDeletion = async ({ node, request, pods }: Around): Promise<Offence> => {
  const { name = "", namespace } = request;
  const pod = await pods(name, namespace);
  if (!pod) return notFound({ group: "", resource: "pod" }, name);
  if (pod.spec?.nodeName !== node) return `node ${quoted(node)} can only delete pods with spec.nodeName set to itself`;
};

const admitEviction = async ({ metadata }: KubernetesObject, { node, request, pods }: Around): Promise<Offence> => {
  if (request.operation !== "CREATE") return `unexpected operation ${request.operation}`;
  const name = request.name || metadata?.name;
  if (!name) return "could not determine pod from request data";
  const pod = await pods(name, request.namespace);
  if (!pod) return notFound({ group: "", resource: "pod" }, name);
  if (pod.spec?.nodeName !== node) return `node ${node} can only evict pods with spec.nodeName set to itself`;
};

/** Not yet in kubernetes-types. */
interface Claiming {
  resourceClaimStatuses?: { name?: string; resourceClaimName?: string }[];
  extendedResourceClaimStatus?: { resourceClaimName?: string; requestMappings?: object[] };
}

const admitStatus = (pod: Pod, { node, request, oldObject }: Around): Offence => {
  if (request.operation !== "UPDATE") return `unexpected operation ${quoted(request.operation)}`;
  const here = `node ${quoted(node)}`;
  const before: Pod = Object(oldObject);
  if (before.spec?.nodeName !== node)
    return `${here} can only update pod status for pods with spec.nodeName set to itself`;
  if (!isSame(pod.metadata?.labels ?? {}, before.metadata?.labels ?? {}))
    return `${here} cannot update labels through pod status`;

  const [claims, claimed] = [pod, before].map(({ status }): Claiming => status ?? {});
  if (!isSame(claims?.resourceClaimStatuses ?? [], claimed?.resourceClaimStatuses ?? []))
    return `${here} cannot update resource claim statues`;
  if (!isSame(claims?.extendedResourceClaimStatus ?? null, claimed?.extendedResourceClaimStatus ?? null))
    return `${here} cannot update extended resource claim status`;
};
