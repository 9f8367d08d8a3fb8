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

  // Upstream refuses in the validating phase, but this rule in the mutating phase. A validating webhook would be called
  // too late: before it, the compiled-in PodSecurity fails for a pod, because it can't read the missing namespace.
  async mutate(_, { request, namespaces }) {
    const name = getObjectNamespace(request);
    if (!name || (await namespaces({ name }))) return;

    return { refuse: notFound({ group: "", resource: "namespaces" }, name) };
  },

  suggest(_, { request }) {
    return describeNamespaceCreation(request.namespace);
  },
});
