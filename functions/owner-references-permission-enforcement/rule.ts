import type { OwnerReference } from "postern/kubernetes/meta/v1";
import { type AccessAnswer, type AccessQuestion, accessReview, discovery, type ServedResource } from "postern/needs";
import { splitApiVersion } from "postern/objects/api-version";
import { forbidden } from "postern/refusals";
import type { AdmissionRequest, KubernetesObject } from "postern/review";
import { rule } from "postern/rule";

interface ObjectWithOwners extends KubernetesObject {
  metadata?: KubernetesObject["metadata"] & { ownerReferences?: OwnerReference[] };
}

const buildOwners = (object: "object" | "oldObject") => `${object}.?metadata.?ownerReferences.orValue([])`;

export default rule({
  // "Blocked" is an owner whose deletion waits for the object, because the object's reference has blockOwnerDeletion.
  summary:
    "Refuses to change an object's owners if the user may not delete the object or may not finalize the blocked owner.",
  order: 22,
  upstreamPlugin: { plugin: "OwnerReferencesPermissionEnforcement" },
  match: [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: ["CREATE", "UPDATE"], scope: "*" }],
  matchConditions: {
    "is-no-status-of-a-pod": `!(request.resource.group == "" && request.resource.resource == "pods" &&
      request.?subResource.orValue("") == "status")`,
    // A condition that exceeds the API server's cost limit fails, so the rule itself checks more than 50 owners.
    "changes-its-owners": `size(${buildOwners("object")}) > 50 || (oldObject == null
      ? ${buildOwners("object")}.exists(owner, owner.?blockOwnerDeletion.orValue(false))
      : ${buildOwners("object")} != ${buildOwners("oldObject")})`,
  },
  guards: true, // a security rule: hardening makes it fail closed
  needs: { may: accessReview(), discover: discovery() },

  async validate(object: ObjectWithOwners, { request, oldObject, may, discover }) {
    if (isPodStatus(request) || !object.metadata || (oldObject && !oldObject.metadata)) return;
    const owners = object.metadata.ownerReferences ?? [];
    const before = oldObject?.metadata?.ownerReferences ?? [];
    if (owners.length === before.length && owners.every((owner, index) => isSameOwner(owner, before[index]))) return;

    const { userInfo: user, namespace = "" } = request;
    const blocking = owners.filter((owner) => blocks(owner) && !before.findLast(hasSameUid(owner))?.blockOwnerDeletion);
    const [deletion, finalizingAnything] = await Promise.all([
      // Only a change of an existing object's owners requires the permission to delete the object.
      oldObject && may(buildDeletionQuestion(request)),
      blocking.length > 0 && may({ user, verb: "update", ...allResources, subresource: "finalizers", name: "*" }),
    ]);
    const refuseRequest = (sentence: string) => ({ refuse: forbidden(request, sentence) });
    if (deletion && !deletion.allowed)
      return refuseRequest(`cannot set an ownerRef on a resource you can't delete: ${printReason(deletion)}`);
    if (!finalizingAnything || finalizingAnything.allowed) return;

    // Without the permission for all resources, it is needed for each owner. The first refusal ends the check.
    for (const owner of blocking) {
      const resources = await listResources(owner, discover);
      if (resources.length === 0) return refuseRequest(describeUnknownKind(owner));
      for (const { namespaced, ...served } of resources) {
        const place = { name: owner.name, ...(namespaced && { namespace }) };
        const permission = await may({ user, verb: "update", ...served, subresource: "finalizers", ...place });
        if (!permission.allowed)
          return refuseRequest(
            `cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: ${printReason(permission)}`,
          );
      }
    }
  },

  async suggest({ metadata }: ObjectWithOwners, { request, oldObject, may }) {
    if (oldObject && !(await may(buildDeletionQuestion(request))).allowed) return;
    const before = oldObject?.metadata?.ownerReferences ?? [];
    for (const owner of metadata?.ownerReferences ?? [])
      if (blocks(owner) && !before.findLast(hasSameUid(owner))?.blockOwnerDeletion) delete owner.blockOwnerDeletion;
  },
});

/** Returns the question whether the user of a request may delete the request's object. */
const buildDeletionQuestion = ({
  userInfo: user,
  resource,
  subResource = "",
  namespace = "",
  name = "",
}: AdmissionRequest): AccessQuestion => {
  return { user, verb: "delete", ...resource, subresource: subResource, namespace, name };
};

const allResources = { group: "*", version: "*", resource: "*" };
const blocks = ({ blockOwnerDeletion }: OwnerReference) => blockOwnerDeletion === true;
const hasSameUid =
  ({ uid }: OwnerReference) =>
  (other: OwnerReference) =>
    other.uid === uid;

const isPodStatus = ({ resource: { group, resource }, subResource }: AdmissionRequest) =>
  group === "" && resource === "pods" && subResource === "status";

const fields = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"] as const;
const isSameOwner = (left: OwnerReference, right: OwnerReference | undefined) =>
  fields.every((field) => left[field] === right?.[field]);

/** Prints the authorizer's answer as upstream does: the reason, then the error. */
const printReason = ({ reason = "", evaluationError = "<nil>" }: AccessAnswer) => `${reason}, ${evaluationError}`;

/** Returns the resources that the cluster serves for an owner's kind. As in upstream, the kind may be in lower case. */
const listResources = async (
  { apiVersion = "", kind }: OwnerReference,
  discover: (groupVersion: string) => Promise<ServedResource[] | undefined>,
) => {
  const { group, version } = splitApiVersion(apiVersion);
  const served = (await discover(apiVersion)) ?? [];
  return served
    .filter((type) => !type.resource.includes("/") && [type.kind, type.kind.toLowerCase()].includes(kind))
    .map(({ resource, namespaced }) => ({ group, version, resource, namespaced }));
};

const describeUnknownKind = ({ apiVersion = "", kind = "" }: OwnerReference) =>
  `cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion ${apiVersion} Kind ${kind}: ` +
  `no matches for kind "${kind}" in version "${apiVersion}"`;
