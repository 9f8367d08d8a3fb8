import type { KubernetesObject } from "postern/review";
import { rule } from "postern/rule";

const protection = "scheduling.k8s.io/podgroup-protection";

export default rule({
  summary: "Delays the deletion of a pod group until no pods belong to it.",
  order: 21,
  upstreamPlugin: {
    plugin: "PodGroupProtection",
    worthwhile:
      "In API servers that serve pod groups, the plugin PodGroupProtection does the same by default. The rule is for clusters that turned this plugin off.",
  },
  match: [
    {
      apiGroups: ["scheduling.k8s.io"],
      apiVersions: ["*"],
      resources: ["podgroups"],
      operations: ["CREATE"],
    },
  ],
  matchConditions: { "is-not-protected": `!("${protection}" in object.?metadata.?finalizers.orValue([]))` },

  mutate(group: KubernetesObject) {
    const finalizers = group.metadata?.finalizers ?? [];
    if (finalizers.includes(protection)) return;

    group.metadata = { ...group.metadata, finalizers: [...finalizers, protection] };
  },
});
