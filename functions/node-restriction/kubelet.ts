import type { Pod } from "postern/kubernetes/core/v1";
import type { CSIDriver } from "postern/kubernetes/storage/v1";
import { type Answers, accessReview, get } from "postern/needs";
import { quoteAsGo } from "postern/objects/go/quoted";
import type { AdmissionRequest, Status, UserInfo } from "postern/review";

export const kubeletNeeds = {
  pods: get("pods"),
  nodes: get("nodes"),
  accounts: get("serviceaccounts"),
  claims: get("persistentvolumeclaims"),
  volumes: get("persistentvolumes"),
  drivers: get<CSIDriver>({ group: "storage.k8s.io", resource: "csidrivers" }),
  may: accessReview(),
};

/** The feature gates that kube-apiserver's NodeRestriction plugin reads, with kube-apiserver's defaults. */
export const nodeRestrictionGateDefaults = {
  serviceAccountNodeAudienceRestriction: true,
  podCertificateRequest: false,
  allowInsecureKubeletCertificateSigningRequests: false,
  recoverVolumeExpansionFailure: true,
  csiVolumeHealth: false,
};

/** What differs between minor versions of Kubernetes. */
export interface NodeRestrictionUpstream {
  /** Returns the resource of the first API object that a mirror pod references; or an error (`unknown`). */
  findReference(pod: Pod): { what?: string; unknown?: string } | undefined;
  /** Describes why a user may not request tokens for an audience: it has no right, or its rights can't be read. */
  describeAudience(user: string | undefined, audience: string, error: string | undefined): string;
  /** Whether a kubelet may not write the status of its pods' claims for resources of the node. */
  protectsNodeClaims: boolean;
  /**
   * Whether PodCertificateRequests are on without the setting, and their signer must be one that the pod or the
   * authorizer allows.
   */
  podCertificates: boolean;
}

/** The values that each check of a kubelet's request gets beside the object. */
export type KubeletRequestContext<Object = unknown> = {
  node: string;
  upstream: NodeRestrictionUpstream;
  request: AdmissionRequest;
  oldObject: Object | null;
  settings: typeof nodeRestrictionGateDefaults;
} & Answers<typeof kubeletNeeds>;

/** The result of checking a kubelet's request: the reason of a refusal, or a complete status; undefined admits it. */
export type KubeletOffence = string | Status | undefined;

/** Returns the name of a kubelet's node, empty if the user name lacks it; undefined for other users. */
export const getNodeName = ({ username, groups }: UserInfo): string | undefined =>
  username?.startsWith(nodeUserPrefix) && groups?.includes("system:nodes")
    ? username.slice(nodeUserPrefix.length)
    : undefined;

/** The prefix of a kubelet's user name; the node's name follows. */
export const nodeUserPrefix = "system:node:";

/** Quotes a text as Go does; an absent text counts as empty. */
export const quoteText = (text: string | undefined) => quoteAsGo(text ?? "");

/** Builds a refusal without the object's name in front, as upstream's message is. */
export const buildForbidden = (message: string): Status => ({ code: 403, reason: "Forbidden", message });
