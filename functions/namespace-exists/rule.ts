import { get } from "postern/needs";
import { describeNamespaceCreation, getObjectNamespace, isNamespacedInCel } from "postern/objects/namespace";
import { notFound } from "postern/refusals";
import { rule } from "postern/rule";

export default rule({
  summary: "Refuses to create, change or delete objects in a namespace that doesn't exist.",
  order: 4,
  upstreamPlugin: { plugin: "NamespaceExists" },
  match: [
    {
      apiGroups: ["*"],
      apiVersions: ["*"],
      resources: ["*/*"],
      operations: ["CREATE", "UPDATE", "DELETE"],
      scope: "Namespaced",
    },
  ],
  matchConditions: { "lives-in-a-namespace": isNamespacedInCel },
  needs: { namespaces: get("namespaces") },

  // Upstream refuses while validating; this port while mutating. Validating webhooks are called too late: before
  // them, the compiled-in PodSecurity fails, because it can't read a missing namespace.
  async mutate(_, { request, namespaces }) {
    const home = getObjectNamespace(request);
    if (!home || (await namespaces({ name: home }))) return;

    return { refuse: notFound({ group: "", resource: "namespaces" }, home) };
  },

  suggest(_, { request }) {
    return describeNamespaceCreation(request.namespace);
  },
});
