import { getOwn, isMap, toMap } from "#lib/json.ts";
import { createRedactor } from "#lib/recording/redaction.ts";
import type { KubernetesObject, Operation } from "#lib/review.ts";
import { fillDefaults } from "../../apiserver/defaults/defaults.ts";
import type { ResourceKind } from "../../apiserver/kinds/kinds.ts";
import { toSentence } from "../../cli/complaint.ts";
import type { Manifest } from "../../manifests/manifests.ts";
import { createUndecidedEvaluation, evaluatePodOfWorkload, evaluateRequest } from "../evaluation/evaluate.ts";
import type { ObjectEvaluation, ObjectEvaluationEnvironment } from "../evaluation/object-evaluation.ts";
import { isWorkload } from "../evaluation/pod-templates.ts";
import { buildAdmissionAttributes, dropServerFieldsAndSetNamespace } from "../evaluation/requests.ts";
import type { DiscoveredResource } from "./discovery.ts";
import type { CachedNamespaces } from "./namespaces.ts";
import { toResourceName } from "./selected-kinds.ts";

type StoredObject = KubernetesObject & { metadata?: { uid?: unknown }; status?: unknown };

/** Evaluates the rules for an object read from a cluster, and for the Pods that it would create; never throws. */
export type ObjectEvaluator = (object: StoredObject, resource: DiscoveredResource) => Promise<ObjectEvaluation[]>;

/** The limit for the number of unknown fields of stored objects that a live check reports. */
const maxUnknownFields = 50;

/** Evaluates objects as they are stored in a cluster, as requests that create, update or delete them. */
export const createStoredObjectEvaluator = (
  environment: ObjectEvaluationEnvironment,
  namespaces: CachedNamespaces,
  operation: Operation,
  note: (sentence: string) => void,
): ObjectEvaluator => {
  const notedFields = new Set<string>();
  const noteUnknownFields = (resource: DiscoveredResource, paths: readonly string[]) => {
    for (const path of paths) {
      const field = `${toResourceName(resource)} ${path.replaceAll(/\[\d+\]/g, "[]")}`;
      if (notedFields.size === maxUnknownFields || notedFields.has(field)) continue;
      notedFields.add(field);
      note(`the field ${field} isn't known here: rules are asked without it`);
    }
  };
  const evaluate = async (object: StoredObject, resource: DiscoveredResource): Promise<ObjectEvaluation[]> => {
    const { namespace } = object.metadata ?? {};
    const { filled, attributes } = buildStoredRequest(object, resource, operation, environment);
    noteUnknownFields(resource, filled.unknownFields);
    // Of all objects, `put` keeps only Namespaces: a request that deletes one is matched by its stored labels.
    namespaces.put(resource.resource, object);
    const failure = namespace === undefined ? undefined : await namespaces.fetch(namespace);
    if (failure !== undefined)
      note(`namespaces such as ${namespace} can't be read, so only their names are known: ${failure}`);
    const [decodingError] = filled.decodingErrors;
    if (decodingError !== undefined) throw new Error(`it can't be read: ${decodingError}`);
    // The request creates an object that exists: quotas already count it, and its Pods may exist, too.
    const stored = operation === "CREATE" ? object : undefined;
    const manifest = toManifest(filled.object);
    const first = await evaluateRequest({ attributes, manifest, ...(stored && { stored }) }, environment);
    const all = [first];
    if (environment.alsoPods && first.checked.verdict !== "denied" && !isOwnedByWorkload(object))
      for await (const made of evaluatePodOfWorkload(first, environment, stored)) all.push(made);
    return all;
  };
  return async (object, resource) => {
    const all = await evaluate(object, resource).catch((error) => [
      createUndecidedEvaluation(toManifest(object), object, toSentence(error)),
    ]);
    return all.map((evaluation) => redactSecretMetadata(replacePlace(evaluation, object)));
  };
};

/** Objects of a cluster have no file. */
const toManifest = (object: KubernetesObject): Manifest => {
  return { source: { name: "", text: "" }, document: 0, path: [], line: 1, object: { ...object } };
};

/**
 * Builds the request that creates an object as it is stored, updates it without a change, or deletes it. A create
 * leaves out what only the API server and controllers set. `filled` has the object with its defaults, the fields that
 * its kind doesn't have, and a sentence for each value that an API server could not decode.
 */
const buildStoredRequest = (
  { status, ...object }: StoredObject,
  kind: ResourceKind,
  operation: Operation,
  { requestOptions: { user }, kubernetes }: ObjectEvaluationEnvironment,
) => {
  const isCreation = operation === "CREATE";
  const rest =
    status === undefined || (isCreation && kind.subresources.includes("status")) ? object : { ...object, status };
  const options = { operation, user, namespace: object.metadata?.namespace ?? "" };
  const filled = fillDefaults(isCreation ? dropServerFieldsAndSetNamespace(rest, kind, options) : rest, kubernetes);
  // For a deletion, `buildAdmissionAttributes` makes the object the old object.
  const oldObject = operation === "UPDATE" ? filled.object : null;
  const attributes = buildAdmissionAttributes(filled.object, oldObject, kind, options);
  return { filled, attributes };
};

/** Returns the owner reference of the controller of a stored object. */
const findController = ({ metadata }: StoredObject) => {
  const owners: unknown = getOwn(metadata, "ownerReferences");
  const found = Array.isArray(owners) && owners.find((owner) => getOwn(owner, "controller") === true);
  return found ? toMap(found) : undefined;
};

/**
 * Reports whether a workload, such as a Deployment, controls a stored object. The Pods of such an object are
 * evaluated with that workload only.
 */
const isOwnedByWorkload = (object: StoredObject): boolean => {
  const controller = findController(object);
  return controller !== undefined && isWorkload(controller);
};

/**
 * Names the controller of a stored object by kind and name. The hash of a ReplicaSet and the time of a CronJob's Job
 * are left out, so that the name is the same for an object and for the one that replaces it.
 */
export const describeOwner = (object: StoredObject): string | undefined => {
  const controller = findController(object);
  if (controller === undefined) return undefined;
  const { kind, name } = controller;
  // An API server accepts any string as kind and name.
  if (![kind, name].every((word) => /^[\w.-]+$/.test(String(word)))) return undefined;
  const [, stem, suffix = ""] = /^(.+)-([^-]+)$/.exec(String(name)) ?? [];
  const labels = Object.values(toMap(getOwn(object.metadata, "labels")));
  const isHash = kind === "ReplicaSet" && labels.includes(suffix);
  const isTime = kind === "Job" && /^\d{8,}$/.test(suffix);
  return `${kind} ${isHash || isTime ? stem : name}`;
};

/**
 * Replaces the file and line by the uid and the owner of the stored object. In the evaluation of a Pod that a stored
 * workload would make, the uid goes into `madeBy`, which names the workload, and no owner is added.
 */
const replacePlace = (evaluation: ObjectEvaluation, object: StoredObject): ObjectEvaluation => {
  const { file: _, line: __, denials, madeBy, ...checked } = evaluation.checked;
  const unplaced = denials.map(({ line: _, column: __, ...denial }) => denial);
  const uid = object.metadata?.uid;
  const withUid = typeof uid === "string" ? { uid } : {};
  const owner = describeOwner(object);
  const origin = madeBy ? { madeBy: { ...madeBy, ...withUid } } : { ...withUid, ...(owner && { owner }) };
  return { ...evaluation, checked: { ...checked, ...origin, denials: unplaced } };
};

/**
 * Returns an evaluation in which a Secret's metadata is redacted as in recordings: programs other than kubectl keep
 * copies of values in annotations of their own. (`hideSecretsInEvaluation` hides the values in `data`.)
 */
const redactSecretMetadata = (evaluation: ObjectEvaluation): ObjectEvaluation => {
  const { checked, steps, before, after } = evaluation;
  if (checked.kind !== "Secret") return evaluation;
  const redact = createRedactor();
  const redactMetadata = (object: unknown) =>
    isMap(object) ? { ...object, metadata: redact(object.metadata) } : object;
  return {
    ...evaluation,
    // The audit annotations with the patches of webhooks may have these values, too.
    audit: Object.fromEntries(Object.entries(evaluation.audit).filter(([key]) => !key.startsWith("patch."))),
    // Reports show the object after a step only if the step changed it.
    steps: steps.map((step) => (step.patch?.length ? { ...step, after: redactMetadata(step.after) } : step)),
    before: redactMetadata(before),
    after: redactMetadata(after),
  };
};
