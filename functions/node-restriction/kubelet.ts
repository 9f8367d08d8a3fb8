import type { CSIDriver } from "kubernetes-types/storage/v1.d.ts";
import { type Answers, accessReview, get } from "postern/needs";
import { goQuoted } from "postern/objects/go-quoted";
import type { Request, Status, UserInfo } from "postern/review";

export const needs = {
  pods: get("pods"),
  nodes: get("nodes"),
  accounts: get("serviceaccounts"),
  claims: get("persistentvolumeclaims"),
  volumes: get("persistentvolumes"),
  drivers: get<{ group: string; resource: string }, CSIDriver>({ group: "storage.k8s.io", resource: "csidrivers" }),
  may: accessReview(),
};

/** The feature gates that the plugin looks at, with Kubernetes' defaults. */
export const gates = {
  serviceAccountNodeAudienceRestriction: true,
  podCertificateRequest: false,
  allowInsecureKubeletCertificateSigningRequests: false,
  recoverVolumeExpansionFailure: true,
};

/** What a judge may know: whose kubelet asks, and for what. */
export type Around = { node: string; request: Request; oldObject: unknown; settings: typeof gates } & Answers<
  typeof needs
>;

/** What is wrong with a request, to be said of its object; or a status that says it all. */
export type Offence = string | Status | undefined;

/** The node whose kubelet a user is, if that; empty where it can't be told. */
export const nodeOf = ({ username, groups }: UserInfo): string | undefined =>
  username?.startsWith(userPrefix) && groups?.includes("system:nodes") ? username.slice(userPrefix.length) : undefined;

/** Of a kubelet's name as a user, before that of its node. */
export const userPrefix = "system:node:";

export const quoted = (text: string | undefined) => goQuoted(text ?? "");

/** Upstream puts no object's name before it. */
export const plainly = (message: string): Status => ({ code: 403, reason: "Forbidden", message });
