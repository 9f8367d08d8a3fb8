import type { Pod } from "postern/kubernetes/core/v1";
import { rule } from "postern/rule";

export default rule({
  summary: "Requires a label on every pod.",
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE", "UPDATE"] }],
  settings: { label: "owner" },

  validate(pod: Pod, { settings }) {
    if (!pod.metadata?.labels?.[settings.label]) return `metadata.labels must have a label "${settings.label}"`;
  },
});
