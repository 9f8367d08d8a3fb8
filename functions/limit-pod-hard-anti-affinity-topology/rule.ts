import type { Pod } from "kubernetes-types/core/v1.d.ts";
import { rule } from "#lib/rule.ts";
import { forbidden } from "#lib/status.ts";

const hostname = "kubernetes.io/hostname";

export default rule({
  summary: "Lets a pod insist on being kept apart from others by node, and by nothing larger.",
  order: 5,
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE", "UPDATE"] }],
  matchConditions: {
    "insists-on-another-topology": `object.?spec.?affinity.?podAntiAffinity
      .?requiredDuringSchedulingIgnoredDuringExecution.orValue([])
      .exists(term, term.topologyKey != "${hostname}")`,
  },

  validate(pod: Pod, { request }) {
    const terms = pod.spec?.affinity?.podAntiAffinity?.requiredDuringSchedulingIgnoredDuringExecution ?? [];
    const offence = terms.find(({ topologyKey }) => topologyKey !== hostname);
    if (!offence) return;

    const text = `affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey ${offence.topologyKey} but only key ${hostname} is allowed`;
    return { refuse: forbidden(request, text, pod.metadata?.name ?? "") };
  },
});
