import type { Pod, Toleration } from "kubernetes-types/core/v1.d.ts";
import { rule } from "#lib/rule.ts";

export default rule({
  summary: "Lets a pod stay five minutes on a node that is lost, unless the pod says otherwise.",
  order: 15,
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE", "UPDATE"] }],
  matchConditions: {
    "misses-a-toleration": `!has(object.spec.tolerations) || !["not-ready", "unreachable"].all(lost,
      object.spec.tolerations.exists(t,
        (!has(t.key) || t.key == "" || t.key == "node.kubernetes.io/" + lost) &&
        (!has(t.effect) || t.effect == "" || t.effect == "NoExecute")))`,
  },
  settings: { notReadySeconds: 300, unreachableSeconds: 300 },

  mutate(pod: Pod, { settings }) {
    const present = pod.spec?.tolerations ?? [];
    const missing = [
      stayFor(settings.notReadySeconds, "node.kubernetes.io/not-ready"),
      stayFor(settings.unreachableSeconds, "node.kubernetes.io/unreachable"),
    ].filter((wanted) => !present.some((toleration) => covers(toleration, wanted)));

    if (pod.spec && missing.length > 0) pod.spec.tolerations = [...present, ...missing];
  },
});

const stayFor = (tolerationSeconds: number, key: string): Toleration => {
  return { key, operator: "Exists", effect: "NoExecute", tolerationSeconds };
};

/** An absent key or effect stands for all of them; upstream looks at nothing else. */
const covers = (toleration: Toleration, wanted: Toleration) =>
  (!toleration.key || toleration.key === wanted.key) && (!toleration.effect || toleration.effect === wanted.effect);
