import { create, get } from "postern/needs";
import { getObjectNamespace, isNamespacedInCel } from "postern/objects/namespace";
import { forbidden } from "postern/refusals";
import { rule } from "postern/rule";

export default rule({
  summary: "Creates the missing namespace of an object that is being created.",
  order: 2,
  upstreamPlugin: { plugin: "NamespaceAutoProvision" },
  match: [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: ["CREATE"], scope: "Namespaced" }],
  matchConditions: { "lives-in-a-namespace": isNamespacedInCel, "is-meant": "!request.?dryRun.orValue(false)" },
  needs: { namespaces: get("namespaces"), provision: create("namespaces") },
  sideEffects: "NoneOnDryRun",

  async mutate(_, { request, namespaces, provision }) {
    const name = getObjectNamespace(request);
    if (!name || request.dryRun || (await namespaces({ name }))) return;

    const result = await provision({ apiVersion: "v1", kind: "Namespace", metadata: { name } });
    // The text says that the namespace was created, or that it exists by now.
    if (typeof result === "string") return;

    // If the API server's refusal is a Forbidden, it is returned unchanged. Otherwise its message becomes a Forbidden.
    const { refused } = result;
    return { refuse: refused.reason === "Forbidden" ? refused : forbidden(request, refused.message) };
  },
});
