import type { NodeRestrictionUpstream } from "./kubelet.ts";
import { findFirstApiObjectReference, findReferenceBefore134 } from "./pod-references.ts";

/** The rule's `since`: the behaviour that differs between minor versions of Kubernetes. */
export const nodeRestrictionSince = {
  "1.0": {
    findReference: findReferenceBefore134,
    describeAudience: (user, audience, error) =>
      error
        ? `audience ${audience} not found in pod spec volume, error authorizing ${user} to request tokens for this audience: ${error}`
        : `audience ${audience} not found in pod spec volume, ${user} is not authorized to request tokens for this audience`,
    protectsNodeClaims: false,
    checksCertificateSigner: false,
  } satisfies NodeRestrictionUpstream as NodeRestrictionUpstream,
  "1.34": { findReference: findFirstApiObjectReference } satisfies Partial<NodeRestrictionUpstream>,
  "1.37": {
    describeAudience: (user, audience, error) =>
      error
        ? `error authorizing ${user} to request tokens for audience ${audience}: ${error}`
        : `${user} is not authorized to request tokens for audience ${audience}`,
    protectsNodeClaims: true,
    checksCertificateSigner: true,
  } satisfies Partial<NodeRestrictionUpstream>,
};
