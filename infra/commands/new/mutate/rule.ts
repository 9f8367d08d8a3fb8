import type { Pod } from "postern/kubernetes/core/v1";
import { rule } from "postern/rule";

export default rule({
  summary: "Gives every pod a label that it lacks.",
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE", "UPDATE"] }],
  settings: { label: "owner", value: "nobody" },

  mutate(pod: Pod, { settings: { label, value } }) {
    if (pod.metadata?.labels?.[label]) return;
    pod.metadata = { ...pod.metadata, labels: { ...pod.metadata?.labels, [label]: value } };
  },
});
