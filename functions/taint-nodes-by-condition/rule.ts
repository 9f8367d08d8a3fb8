import type { Node } from "postern/kubernetes/core/v1";
import { rule } from "postern/rule";

const notReady = { key: "node.kubernetes.io/not-ready", effect: "NoSchedule" };

export default rule({
  summary: "Taints a new node until it is ready.",
  order: 9,
  upstreamPlugin: { plugin: "TaintNodesByCondition" },
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["nodes"], operations: ["CREATE"] }],
  matchConditions: {
    "lacks-the-taint": `!object.?spec.?taints.orValue([])
      .exists(taint, taint.key == "${notReady.key}" && taint.effect == "${notReady.effect}")`,
  },

  mutate(node: Node) {
    const taints = node.spec?.taints ?? [];
    if (taints.some(({ key, effect }) => key === notReady.key && effect === notReady.effect)) return;

    node.spec = { ...node.spec, taints: [...taints, notReady] };
  },
});
