import { rule } from "postern/rule";

export default rule({
  summary: "Admits everything, so that there is something harmless to deploy.",
  order: 1,
  upstreamPlugin: { plugin: "AlwaysAdmit" },
  match: [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: ["*"] }],
  matchConditions: { never: "false" },

  validate() {},
});
