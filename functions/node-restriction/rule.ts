import { forbidden } from "postern/refusals";
import type { KubernetesObject } from "postern/review";
import { rule } from "postern/rule";
import {
  getNodeName,
  type KubeletOffence,
  type KubeletRequestContext,
  kubeletNeeds,
  nodeRestrictionGateDefaults,
  quoteText,
} from "./kubelet.ts";
import { checkNode } from "./nodes.ts";
import {
  checkCsiNode,
  checkKubeletClaimUpdate,
  checkLease,
  checkResourceSlice,
  checkSigningRequest,
} from "./other-resources.ts";
import { checkPodCertificateRequest } from "./pod-certificates.ts";
import { checkPod } from "./pods.ts";
import { checkTokenRequest } from "./tokens.ts";
import { nodeRestrictionSince } from "./versions.ts";
import {
  heartbeatMatches,
  isKubeletCondition,
  noPodRemovalCondition,
  noStatusHeartbeatCondition,
  otherKubeletRequests,
  podAndNodeRequests,
  skipOrdinaryHeartbeatConditions,
} from "./webhook-entries.ts";

export default rule({
  summary: "Lets a kubelet write only objects that belong to its own node.",
  order: 8,
  upstreamPlugin: { plugin: "NodeRestriction" },
  match: [...podAndNodeRequests, ...otherKubeletRequests, ...heartbeatMatches],
  matchConditions: isKubeletCondition,
  variants: [
    {
      name: "heartbeats",
      match: heartbeatMatches,
      matchConditions: { ...isKubeletCondition, ...skipOrdinaryHeartbeatConditions },
      everywhere: true, // hardening makes it fail closed in kube-system, too
      // The timeout is short, because nodes and their pods depend on these writes.
      timeoutSeconds: 2,
    },
    {
      name: "pods",
      match: podAndNodeRequests,
      everywhere: true, // hardening makes it fail closed in kube-system, too
      matchConditions: { ...isKubeletCondition, ...noStatusHeartbeatCondition, ...noPodRemovalCondition },
    },
    // The rest, such as deletions of pods and requests for tokens. Hardening exempts kube-system from this entry.
    { name: "others", match: otherKubeletRequests },
  ],
  guards: true, // a security rule: hardening makes it fail closed
  settings: nodeRestrictionGateDefaults,
  since: nodeRestrictionSince,
  needs: kubeletNeeds,

  /**
   * A kubelet's request is checked here, as the validating phase no longer sees what the kubelet sent: by then, the
   * API server has set missing audiences of token requests, and undone what status updates change outside the status.
   */
  async mutate(object, { request, ...context }) {
    const node = getNodeName(request.userInfo);
    if (node === undefined) return;
    const refuse =
      node === ""
        ? `could not determine node from user ${quoteText(request.userInfo.username)}`
        : await resourceChecks[`${request.resource.resource}.${request.resource.group}`]?.(object, {
            ...context,
            request,
            node,
          });
    if (refuse) return { refuse: typeof refuse === "string" ? forbidden(request, refuse) : refuse };
  },
});

/**
 * A check of a kubelet's write to one resource, such as pods. TypeScript lets methods have parameters of narrower types
 * (bivariance), such as Pod. This is safe, because the API server ensures that the object has the resource's kind.
 */
type ResourceCheck = {
  bivarianceHack(object: KubernetesObject, context: KubeletRequestContext): KubeletOffence | Promise<KubeletOffence>;
}["bivarianceHack"];

/** The checks by `RESOURCE.GROUP`. The name of the core group is empty. */
const resourceChecks: Record<string, ResourceCheck> = {
  "pods.": checkPod,
  "nodes.": checkNode,
  "persistentvolumeclaims.": checkKubeletClaimUpdate,
  "serviceaccounts.": checkTokenRequest,
  "podcertificaterequests.certificates.k8s.io": checkPodCertificateRequest,
  "leases.coordination.k8s.io": checkLease,
  "csinodes.storage.k8s.io": checkCsiNode,
  "resourceslices.resource.k8s.io": checkResourceSlice,
  "certificatesigningrequests.certificates.k8s.io": checkSigningRequest,
};
