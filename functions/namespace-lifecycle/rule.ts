import { get } from "postern/needs";
import { describeNamespaceCreation, getObjectNamespace, isNamespacedInCel } from "postern/objects/namespace";
import { forbidden, notFound } from "postern/refusals";
import type { AdmissionRequest, Status } from "postern/review";
import { rule } from "postern/rule";

const protectedNamespaces = ["default", "kube-system", "kube-public"];

export default rule({
  summary:
    "Refuses new objects in namespaces that are missing or being deleted, and the deletion of three system namespaces.",
  order: 3,
  upstreamPlugin: { plugin: "NamespaceLifecycle" },
  match: [
    {
      apiGroups: ["*"],
      apiVersions: ["*"],
      resources: ["*/*"],
      operations: ["CREATE", "UPDATE"],
      scope: "Namespaced",
    },
    { apiGroups: [""], apiVersions: ["v1"], resources: ["namespaces"], operations: ["DELETE"], scope: "Cluster" },
  ],
  matchConditions: {
    "may-be-refused": `request.operation == "DELETE" ? request.?name.orValue("") in ${JSON.stringify(protectedNamespaces)} :
      ${isNamespacedInCel} &&
      !(request.resource.group == "authorization.k8s.io" && request.resource.resource == "localsubjectaccessreviews")`,
  },
  since: { "1.0": { checked: ["CREATE", "UPDATE"] }, "1.37": { checked: ["CREATE"] } },
  needs: {
    // For new objects, the Namespace is read without the cache: an object that is created while its namespace is being
    // deleted may never be deleted.
    current: get("namespaces", { maxAge: 0 }),
    recent: get("namespaces"),
  },

  async mutate(_, { request, upstream, current, recent }) {
    if (request.operation === "DELETE")
      return isProtectedNamespace(request)
        ? { refuse: forbidden(request, "this namespace may not be deleted") }
        : undefined;

    const name = getObjectNamespace(request);
    if (!name || isAccessReview(request) || !upstream.checked.includes(request.operation)) return;

    const isNew = request.operation === "CREATE";
    const namespace = await (isNew ? current : recent)({ name });
    if (!namespace) return { refuse: notFound({ group: "", resource: "namespaces" }, name) };
    if (isNew && namespace.status?.phase === "Terminating") return { refuse: buildTerminatingStatus(request, name) };
  },

  async suggest(_, { request, current }) {
    if (request.operation === "DELETE") return;
    const { namespace = "" } = request;
    if (!(await current({ name: namespace }))) return describeNamespaceCreation(namespace);
    return `wait until namespace ${JSON.stringify(namespace)} is deleted, and create it again`;
  },
});

const isProtectedNamespace = ({ kind, name = "" }: AdmissionRequest) =>
  kind.group === "" && kind.kind === "Namespace" && protectedNamespaces.includes(name);

/** Reports whether a request asks for permissions of a user. Its answer must not reveal whether a namespace exists. */
const isAccessReview = ({ resource: { group, resource } }: AdmissionRequest) =>
  group === "authorization.k8s.io" && resource === "localsubjectaccessreviews";

/** Builds the refusal for a namespace that is being deleted. Controllers read the cause in it and stop retrying. */
const buildTerminatingStatus = (request: AdmissionRequest, name: string): Status => {
  const text = `unable to create new content in namespace ${name} because it is being terminated`;
  const { details, ...refusal } = forbidden(request, text);
  const message = `namespace ${name} is being terminated`;
  return {
    ...refusal,
    details: { ...details, causes: [{ reason: "NamespaceTerminating", message, field: "metadata.namespace" }] },
  };
};
