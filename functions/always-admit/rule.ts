import { rule } from "postern/rule";

export default rule({
  summary: "Admits every request: a harmless rule for testing a deployment.",
  order: 1,
  upstreamPlugin: { plugin: "AlwaysAdmit" },
  match: [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: ["*"] }],
  matchConditions: { never: "false" }, // the rule admits everything, so an API server needn't call it

  validate() {},
});
