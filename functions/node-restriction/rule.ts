import { forbidden } from "postern/refusals";
import type { KubernetesObject } from "postern/review";
import { rule } from "postern/rule";
import { type Around, gates, needs, nodeOf, type Offence, quoted } from "./kubelet.ts";
import { admitNode } from "./nodes.ts";
import { admitClaim, admitCsiNode, admitLease, admitResourceSlice, admitSigningRequest } from "./other-resources.ts";
import { admitPodCertificateRequest } from "./pod-certificates.ts";
import { admitPod } from "./pods.ts";
import { admitToken } from "./tokens.ts";
import { heartbeats, isKubelet, isNoEviction, isNoHeartbeat, isUnusual, others, pods } from "./webhook-entries.ts";

export default rule({
  summary: "Lets a kubelet write only what belongs to its own node.",
  order: 8,
  upstreamPlugin: { plugin: "NodeRestriction" },
  match: [...pods, ...others, ...heartbeats],
  matchConditions: isKubelet,
  variants: [
    { name: "heartbeats", match: heartbeats, matchConditions: { ...isKubelet, ...isUnusual }, everywhere: true },
    {
      name: "pods",
      match: pods,
      everywhere: true,
      matchConditions: { ...isKubelet, ...isNoHeartbeat, ...isNoEviction },
    },
    { name: "others", match: others },
  ],
  guards: true,
  settings: gates,
  needs,

  /** Mutating, because later the API server fills in audiences and drops what was sent beside a status. */
  async mutate(object, { request, ...around }) {
    const node = nodeOf(request.userInfo);
    if (node === undefined) return;
    const refuse =
      node === ""
        ? `could not determine node from user ${quoted(request.userInfo.username)}`
        : await judges[`${request.resource.resource}.${request.resource.group}`]?.(object, {
            ...around,
            request,
            node,
          });
    if (refuse) return { refuse: typeof refuse === "string" ? forbidden(request, refuse) : refuse };
  },
});

/** The API server ensures that an object has the kind that the function of its resource expects. */
type Judge = { bivarianceHack(object: KubernetesObject, around: Around): Offence | Promise<Offence> }["bivarianceHack"];

const judges: Record<string, Judge> = {
  "pods.": admitPod,
  "nodes.": admitNode,
  "persistentvolumeclaims.": admitClaim,
  "serviceaccounts.": admitToken,
  "podcertificaterequests.certificates.k8s.io": admitPodCertificateRequest,
  "leases.coordination.k8s.io": admitLease,
  "csinodes.storage.k8s.io": admitCsiNode,
  "resourceslices.resource.k8s.io": admitResourceSlice,
  "certificatesigningrequests.certificates.k8s.io": admitSigningRequest,
};
