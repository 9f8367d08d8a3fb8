import type { Value } from "../cel/values.ts";
import { toMap } from "../json.ts";
import type { AdmissionRequest, KubernetesObject } from "../review.ts";
import type { PolicyInput } from "./expressions.ts";

/** Returns the variables that don't depend on a policy's parameters. */
export const createRequestVariables = ({ object, oldObject, ...request }: AdmissionRequest): PolicyInput => {
  const { uid: _, dryRun = false, ...shown } = request;
  const { resource, kind, subResource } = request;
  const filled = { requestKind: kind, requestResource: resource, requestSubResource: subResource, ...shown, dryRun };
  // The cast is safe: a request is JSON. Members without a value are absent, as in the JSON that upstream makes.
  return {
    object: (object ?? null) as Value,
    oldObject: (oldObject ?? null) as Value,
    request: dropEmpty(filled) as unknown as Value,
  };
};

/**
 * Returns the variables for matchConditions. As in upstream, `namespaceObject` is always null there, and
 * `request.resource` is the resource that the client requested.
 */
export const toConditionsInput = (input: PolicyInput): PolicyInput => {
  const request = toMap(input.request);
  return { ...input, namespaceObject: null, request: { ...request, resource: request.requestResource } as Value };
};

/** The fields of a request that are left out if they are empty. */
const omittedIfEmpty = new Set(["subResource", "requestSubResource", "name", "namespace"]);
const dropEmpty = (request: object) =>
  Object.fromEntries(
    Object.entries(request).filter(([key, value]) => value !== undefined && (value !== "" || !omittedIfEmpty.has(key))),
  );

/** The fields of a namespace's metadata that expressions can read in `namespaceObject`. */
const namespaceMetadataFields = (
  "name generateName namespace uid resourceVersion generation creationTimestamp deletionTimestamp " +
  "deletionGracePeriodSeconds labels annotations finalizers"
).split(" ");

/** Returns the value of `namespaceObject`: the fields of a namespace that upstream gives to policies. */
export const toNamespaceObject = (namespace: KubernetesObject): Value => {
  const { metadata, spec, status } = namespace as Record<string, unknown>;
  const readableMetadata = Object.entries(toMap(metadata)).filter(([key]) => namespaceMetadataFields.includes(key));
  return {
    metadata: Object.fromEntries(readableMetadata),
    spec: toMap(spec),
    status: toMap(status),
  } as Value;
};
