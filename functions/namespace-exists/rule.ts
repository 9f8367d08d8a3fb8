import { get } from "#lib/needs.ts";
import { creationOf, homeOf, livesInANamespace } from "#lib/objects/namespace.ts";
import { rule } from "#lib/rule.ts";
import { notFound } from "#lib/status.ts";

export default rule({
  summary: "Lets nothing be created, changed or deleted in a namespace that does not exist.",
  order: 4,
  twin: { plugin: "NamespaceExists" },
  match: [
    {
      apiGroups: ["*"],
      apiVersions: ["*"],
      resources: ["*/*"],
      operations: ["CREATE", "UPDATE", "DELETE"],
      scope: "Namespaced",
    },
  ],
  matchConditions: { "lives-in-a-namespace": livesInANamespace },
  needs: { namespaces: get("namespaces") },

  // Upstream refuses when the object has been validated. By then PodSecurity has failed for want of the namespace.
  async mutate(_, { request, namespaces }) {
    const home = homeOf(request);
    if (!home || (await namespaces(home))) return;

    return { refuse: notFound({ group: "", resource: "namespaces" }, home) };
  },

  suggest(_, { request }) {
    return creationOf(request.namespace);
  },
});
