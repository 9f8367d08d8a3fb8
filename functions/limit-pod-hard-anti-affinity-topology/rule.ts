import type { Pod } from "postern/kubernetes/core/v1";
import { forbidden } from "postern/refusals";
import { rule } from "postern/rule";

const hostname = "kubernetes.io/hostname";
const terms = "object.?spec.?affinity.?podAntiAffinity.?requiredDuringSchedulingIgnoredDuringExecution.orValue([])";

export default rule({
  summary: "Refuses required pod anti-affinity with a topology larger than the node.",
  order: 5,
  upstreamPlugin: { plugin: "LimitPodHardAntiAffinityTopology" },
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE", "UPDATE"] }],
  matchConditions: {
    // A CEL condition that exceeds the API server's cost limit is an error. So the API server calls the rule for each
    // pod with more than 50 terms, and the rule itself checks such pods.
    "insists-on-another-topology": `size(${terms}) > 50 || ${terms}.exists(term, term.topologyKey != "${hostname}")`,
  },

  validate(pod: Pod, { request }) {
    const required = pod.spec?.affinity?.podAntiAffinity?.requiredDuringSchedulingIgnoredDuringExecution ?? [];
    const offence = required.find(({ topologyKey }) => topologyKey !== hostname);
    if (!offence) return;

    const text = `affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey ${offence.topologyKey ?? ""} but only key ${hostname} is allowed`;
    return { refuse: forbidden(request, text, pod.metadata?.name ?? "") };
  },

  suggest(pod: Pod, { request }) {
    // The affinity of an existing pod can't be changed.
    if (request.operation !== "CREATE") return;
    const required = pod.spec?.affinity?.podAntiAffinity?.requiredDuringSchedulingIgnoredDuringExecution ?? [];
    for (const term of required) term.topologyKey = hostname;
  },
});
