import { isSame } from "postern/json";
import type { Node } from "postern/kubernetes/core/v1";
import { type KubeletOffence, type KubeletRequestContext, quoteText } from "./kubelet.ts";

/** Returns why a kubelet may not send this request about a Node; undefined if it may. */
export const checkNode = (object: Node, { node, request, oldObject }: KubeletRequestContext<Node>): KubeletOffence => {
  const subject = `node ${quoteText(node)} is not allowed to`;
  if (request.name !== node) return `${subject} modify node ${quoteText(request.name)}`;
  if (request.operation === "DELETE") return;

  const { metadata, spec } = object;
  if (request.operation === "CREATE") {
    if (spec?.configSource) return `${subject} create pods with a non-nil configSource`;
    const labels = listForbiddenLabels(metadata?.labels ?? {}, {});
    return labels.length > 0 ? `${subject} set the following labels: ${labels.join(", ")}` : undefined;
  }
  if (spec?.configSource && !isSame(spec.configSource, oldObject?.spec?.configSource))
    return `${subject} update configSource to a new non-nil configSource`;
  if (!isSame(spec?.taints ?? [], oldObject?.spec?.taints ?? [])) return `${subject} modify taints`;
  if (!isSame(metadata?.ownerReferences ?? [], oldObject?.metadata?.ownerReferences ?? []))
    return `${subject} modify ownerReferences`;
  const labels = listForbiddenLabels(metadata?.labels ?? {}, oldObject?.metadata?.labels ?? {});
  // Upstream's sentence has no subject here.
  if (labels.length > 0) return `is not allowed to modify labels: ${labels.join(", ")}`;
};

type Labels = Record<string, string>;

/** Returns keys of changed labels that a kubelet must not change, because workloads select trusted nodes by them. */
const listForbiddenLabels = (labels: Labels, before: Labels): string[] => {
  const newLabels = new Map(Object.entries(labels));
  const oldLabels = new Map(Object.entries(before));
  const keys = new Set([...newLabels.keys(), ...oldLabels.keys()]);
  return [...keys].filter((key) => newLabels.get(key) !== oldLabels.get(key) && isForbiddenLabel(key)).sort();
};

/** Reports whether kubelets may not set this label of a node, such as node-restriction.kubernetes.io/team. */
const isForbiddenLabel = (key: string): boolean => {
  const [domain, ...name] = key.split("/");
  if (domain === undefined || name.length === 0) return false;
  if (isSubdomainOf(domain, ["node-restriction.kubernetes.io"])) return true;
  return (
    isSubdomainOf(domain, ["kubernetes.io", "k8s.io"]) &&
    !kubeletLabels.has(key) &&
    !isSubdomainOf(domain, kubeletDomains)
  );
};

/** Reports whether a domain is one of these domains, or a subdomain of one. */
const isSubdomainOf = (domain: string, domains: readonly string[]) =>
  domains.some((parent) => domain === parent || domain.endsWith(`.${parent}`));

/** Kubernetes' own domains of which kubelets may set all labels, also those of subdomains. */
const kubeletDomains = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/** The labels of other domains of Kubernetes that kubelets may set. */
const kubeletLabels = new Set(
  (
    "kubernetes.io/hostname kubernetes.io/os kubernetes.io/arch topology.kubernetes.io/zone " +
    "topology.kubernetes.io/region failure-domain.beta.kubernetes.io/zone " +
    "failure-domain.beta.kubernetes.io/region beta.kubernetes.io/instance-type beta.kubernetes.io/os " +
    "beta.kubernetes.io/arch node.kubernetes.io/instance-type"
  ).split(" "),
);
