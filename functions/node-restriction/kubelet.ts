import type { Pod } from "postern/kubernetes/core/v1";
import type { CSIDriver } from "postern/kubernetes/storage/v1";
import { type Answers, accessReview, get } from "postern/needs";
import { quoteAsGo } from "postern/objects/go/quoted";
import type { AdmissionRequest, Status, UserInfo } from "postern/review";

/** What the rule may read from the cluster to check a kubelet's request. */
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

/** The behaviour that differs between minor versions of Kubernetes. */
export interface NodeRestrictionUpstream {
  /** Returns the resource of the first API object that a mirror pod references (`what`), or an error (`unknown`). */
  findReference(pod: Pod): { what?: string; unknown?: string } | undefined;
  /** Describes why a user may not request tokens for an audience: without permission, or because of an `error`. */
  describeAudience(user: string | undefined, audience: string, error: string | undefined): string;
  /** True if a kubelet may not write `nodeAllocatableResourceClaimStatuses` of its pods. */
  protectsNodeClaims: boolean;
  /**
   * What is checked of a PodCertificateRequest. True: its signer, which a volume of the pod must name or the authorizer
   * must allow. False: whether the feature gate `podCertificateRequest` is on.
   */
  checksCertificateSigner: boolean;
}

/** What each check gets besides the object. `upstream` says how the cluster's version of Kubernetes behaves. */
export type KubeletRequestContext<Object = unknown> = {
  node: string;
  upstream: NodeRestrictionUpstream;
  request: AdmissionRequest;
  oldObject: Object | null;
  settings: typeof nodeRestrictionGateDefaults;
} & Answers<typeof kubeletNeeds>;

/** The result of a check: the reason of a refusal, or the complete status of a refusal; undefined if there is none. */
export type KubeletOffence = string | Status | undefined;

/** Returns the name of a kubelet's node; empty for `system:node:`, and undefined for other users. */
export const getNodeName = ({ username, groups }: UserInfo): string | undefined =>
  username?.startsWith(nodeUserPrefix) && groups?.includes("system:nodes")
    ? username.slice(nodeUserPrefix.length)
    : undefined;

/** The prefix of a kubelet's user name; the node's name follows. */
export const nodeUserPrefix = "system:node:";

/** Quotes a text as Go does. An absent text is quoted as an empty text. */
export const quoteText = (text: string | undefined) => quoteAsGo(text ?? "");

/** Builds a refusal whose message doesn't begin with the object's name, as in upstream. */
export const buildForbidden = (message: string): Status => ({ code: 403, reason: "Forbidden", message });
