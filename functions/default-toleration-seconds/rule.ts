import type { Pod, Toleration } from "postern/kubernetes/core/v1";
import { rule } from "postern/rule";

export default rule({
  summary:
    "Lets a pod stay five minutes on a node that is unreachable or not ready, unless the pod has its own tolerations.",
  order: 15,
  upstreamPlugin: {
    plugin: "DefaultTolerationSeconds",
    worthwhile:
      "The API server's plugin DefaultTolerationSeconds does the same by default, with 300 seconds. The rule is for other durations, with the setting replaceDefaults.",
  },
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE", "UPDATE"] }],
  matchConditions: ({ replaceDefaults }) => ({
    "concerns-its-tolerations": `!has(object.spec.tolerations) || !["not-ready", "unreachable"].all(lost,
      object.spec.tolerations.exists(t,
        (!has(t.key) || t.key == "" || t.key == "node.kubernetes.io/" + lost) &&
        (!has(t.effect) || t.effect == "" || t.effect == "NoExecute")))
      ${replaceDefaults ? '|| request.operation == "CREATE" && object.spec.tolerations.exists(t, t.?tolerationSeconds.orValue(0) == 300)' : ""}`,
  }),
  settings: { notReadySeconds: 300, unreachableSeconds: 300, replaceDefaults: false },

  mutate(pod: Pod, { request, settings }) {
    const wanted = [
      buildToleration(settings.notReadySeconds, "node.kubernetes.io/not-ready"),
      buildToleration(settings.unreachableSeconds, "node.kubernetes.io/unreachable"),
    ];
    const present = pod.spec?.tolerations ?? [];
    const missing = wanted.filter(
      (toleration) => !present.some((presentToleration) => covers(presentToleration, toleration)),
    );
    const replaces =
      settings.replaceDefaults && request.operation === "CREATE" && !pod.metadata?.annotations?.[keepAnnotation];
    const kept = replaces
      ? present.map(
          (presentToleration) => wanted.find(({ key }) => isDefault(presentToleration, key)) ?? presentToleration,
        )
      : present;

    if (pod.spec && (replaces || missing.length > 0)) pod.spec.tolerations = [...kept, ...missing];
  },
});

/** With this annotation, a pod keeps its own tolerations. */
const keepAnnotation = "default-toleration-seconds.postern.dev/keep";

const buildToleration = (tolerationSeconds: number, key: string): Toleration => {
  return { key, operator: "Exists", effect: "NoExecute", tolerationSeconds };
};

/** Reports whether a toleration covers another. As in upstream, no key means all keys, and no effect all effects. */
const covers = (toleration: Toleration, wanted: Toleration) =>
  (!toleration.key || toleration.key === wanted.key) && (!toleration.effect || toleration.effect === wanted.effect);

/** Reports whether a toleration equals the one that the plugin adds. The pod's author may have written the same. */
const isDefault = ({ key, operator, effect, tolerationSeconds }: Toleration, wanted: string | undefined) =>
  key === wanted && operator === "Exists" && effect === "NoExecute" && tolerationSeconds === 300;
