import { getOwn, isMap, isObject, isSame, type JsonMap } from "#lib/json.ts";
import { joinApiVersion, splitApiVersion } from "#lib/objects/api-version.ts";
import { formatCurrentTime } from "../current-time.ts";
import { computeUid } from "../object-uid.ts";
import type { AdmissionAttributes } from "./types.ts";

// An API server reads, compares and completes objects between webhooks. These functions do the same.

/**
 * Returns a patched object as an API server reads it: built-in kinds lose null members and empty labels, annotations,
 * finalizers and ownerReferences; a custom resource stays as it is.
 */
export const normalizePatchedObject = (object: unknown): unknown => {
  if (!isMap(object) || !isBuiltInObject(object)) return object;
  const read = dropNulls(object) as JsonMap;
  if (!isMap(read.metadata)) return read;
  const kept = Object.entries(read.metadata).filter(([key, value]) => !(omittedIfEmpty.has(key) && isEmpty(value)));
  return { ...read, metadata: Object.fromEntries(kept) };
};

const omittedIfEmpty = new Set(["labels", "annotations", "finalizers", "ownerReferences"]);

const isEmpty = (value: unknown): boolean => isObject(value) && Object.keys(value).length === 0;

/** Reports whether an object belongs to one of Kubernetes' own API groups. */
const isBuiltInObject = ({ apiVersion }: JsonMap): boolean => {
  const { group } = splitApiVersion(String(apiVersion));
  return !group.includes(".") || group.endsWith(".k8s.io");
};

/** Returns a value without null members; if the value's own name is one of `mapMembers`, they stay. */
const dropNulls = (value: unknown, ownName = ""): unknown => {
  if (Array.isArray(value)) {
    const read = value.map((element) => dropNulls(element));
    return read.every((element, index) => element === value[index]) ? value : read;
  }
  if (!isMap(value)) return value;
  let read = value;
  for (const name of Object.keys(value)) {
    const member = value[name];
    const isDropped = member === null && !mapMembers.has(ownName);
    const kept = isObject(member) ? dropNulls(member, name) : member;
    if (kept === member && !isDropped) continue;
    if (read === value) read = { ...value };
    if (isDropped) delete read[name];
    else read[name] = kept;
  }
  return read;
};

/**
 * Reports whether two objects are the same to an API server. Custom resources are compared as they are; in built-in
 * kinds, null and empty members count as absent.
 */
export const isSameBesidesEmptyMembers = (left: unknown, right: unknown): boolean =>
  isMap(left) && !isBuiltInObject(left) ? isSame(left, right) : isSameObject(left, right);

/** Members that are maps with free keys in Kubernetes' Go types; the other objects in JSON are structs. */
const mapMembers = new Set(
  "labels annotations data binaryData stringData matchLabels nodeSelector limits requests capacity selector".split(" "),
);

/** Reports whether two values are equal. Null, `[]` and empty maps count as absent; `key` tells a map from a struct. */
const isSameObject = (left: unknown, right: unknown, key = ""): boolean => {
  if (left === right) return true;
  if (isAbsent(left, key) || isAbsent(right, key)) return isAbsent(left, key) && isAbsent(right, key);
  if (Array.isArray(left) || Array.isArray(right))
    return (
      Array.isArray(left) &&
      Array.isArray(right) &&
      left.length === right.length &&
      left.every((element, index) => isSameObject(element, right[index]))
    );
  if (!isMap(left) || !isMap(right)) return false;
  return (
    Object.keys(left).every((name) => isSameObject(left[name], getOwn(right, name), name)) &&
    Object.keys(right).every((name) => Object.hasOwn(left, name) || isAbsent(right[name], name))
  );
};

/** Reports whether Go's JSON omits a member: if it is null, an empty list or an empty map, but not an empty struct. */
const isAbsent = (value: unknown, key: string): boolean =>
  value === undefined ||
  value === null ||
  (Array.isArray(value) && value.length === 0) ||
  (mapMembers.has(key) && isMap(value) && Object.keys(value).length === 0);

/** Returns an object with the empty maps and lists of `sent`, which is the object as the client sent it. */
export const restoreEmptyMembers = (object: unknown, sent: unknown): unknown => {
  if (Array.isArray(object) && Array.isArray(sent))
    return object.map((element, index) => restoreEmptyMembers(element, sent[index]));
  if (!isMap(object) || !isMap(sent)) return object;
  return Object.fromEntries([
    ...Object.entries(object).map(([name, member]) => [name, restoreEmptyMembers(member, getOwn(sent, name))]),
    ...Object.entries(sent).filter(([name, member]) => !Object.hasOwn(object, name) && isEmpty(member)),
  ]);
};

/**
 * Reports whether the request adds an entry to managedFields. The API server keeps the entry's time with nanoseconds
 * until it applies the first webhook's patch: it then writes the object as JSON, in which times have whole seconds, and
 * reads it again. So the object is another one than before, even if the patch changes nothing else.
 */
export const hasNanosecondsInManagedFields = ({
  operation,
  object,
  oldObject,
  subResource,
}: AdmissionAttributes): boolean => {
  if (!isMap(object) || !isMap(object.metadata) || !isBuiltInObject(object) || !/^(CREATE|UPDATE)$/.test(operation))
    return false;
  const { managedFields } = object.metadata;
  if (Array.isArray(managedFields)) {
    const { managedFields: before } = isMap(oldObject) && isMap(oldObject.metadata) ? oldObject.metadata : {};
    const earlier: unknown[] = Array.isArray(before) ? before : [];
    return managedFields.some((field) => !earlier.some((earlierField) => isSame(field, earlierField)));
  }
  // Objects in files have no managedFields: this predicts whether an API server would add an entry to them.
  if (subResource && subResource !== "status") return false;
  return (
    hasManagedContent(object) &&
    (operation === "CREATE" || !isSameObject(dropServerFields(object), dropServerFields(oldObject)))
  );
};

/** The fields of metadata that managedFields never list. */
const unowned = new Set(
  "name generateName namespace uid resourceVersion generation creationTimestamp deletionTimestamp selfLink".split(" "),
);

/** Reports whether an object has fields for managedFields to list; without any, the API server adds no entry. */
const hasManagedContent = ({ metadata, apiVersion, kind, status, ...rest }: JsonMap): boolean =>
  Object.keys(rest).length > 0 || Object.keys(metadata ?? {}).some((key) => !unowned.has(key));

const dropServerFields = (object: unknown): unknown => {
  if (!isMap(object) || !isMap(object.metadata)) return object;
  const { resourceVersion, generation, ...metadata } = object.metadata;
  return { ...object, metadata };
};

/**
 * Returns the object as validating hooks see it when a request writes only a part of it. A Scale has only some of its
 * owner's metadata; a status update keeps the old spec and, for some kinds, the old metadata or labels; a Pod's other
 * subresources write only some containers' fields.
 */
export const restoreUnwrittenFields = (
  { subResource, kind, oldObject }: AdmissionAttributes,
  object: unknown,
): unknown => {
  if (!isMap(object) || !isMap(object.metadata)) return object;
  if (subResource === "scale" && kind.kind === "Scale") {
    const { labels, annotations, finalizers, ownerReferences, ...metadata } = object.metadata;
    return { ...object, metadata };
  }
  if (!isMap(oldObject) || !isMap(oldObject.metadata)) return object;
  const keep = kind.kind === "Pod" ? podParts.get(subResource) : undefined;
  if (keep !== undefined && isMap(object.spec) && isMap(oldObject.spec))
    return { ...oldObject, spec: { ...oldObject.spec, ...keep(object.spec, oldObject.spec) } };
  if (subResource !== "status") return object;
  const { spec, ...rest } = object;
  const before = oldObject.spec === undefined ? {} : { spec: oldObject.spec };
  if (!isBuiltInObject(object)) return { ...rest, ...before, metadata: oldObject.metadata };
  if (kind.group !== "apps") return { ...rest, ...before };
  const { labels, ...metadata } = object.metadata;
  const { labels: kept } = oldObject.metadata;
  return { ...rest, ...before, metadata: { ...metadata, ...(kept !== undefined && { labels: kept }) } };
};

/** The fields of a Pod's spec that its subresources write. */
const podParts = new Map<string | undefined, (spec: JsonMap, before: JsonMap) => JsonMap>([
  [
    "ephemeralcontainers",
    ({ ephemeralContainers }) => (ephemeralContainers === undefined ? {} : { ephemeralContainers }),
  ],
  [
    "resize",
    ({ resources, containers, initContainers }, before) => ({
      ...(resources !== undefined && { resources }),
      containers: resizeContainers(containers, before.containers),
      ...(initContainers !== undefined && { initContainers: resizeContainers(initContainers, before.initContainers) }),
    }),
  ],
]);

/**
 * Returns the old containers with the new resources. If containers were added, removed, renamed or moved, returns the
 * new ones, so that API validation refuses them.
 */
const resizeContainers = (now: unknown, before: unknown): unknown => {
  if (!Array.isArray(now) || !Array.isArray(before)) return now;
  const isOther = now.length !== before.length || now.some(({ name }, index) => name !== before[index].name);
  if (isOther) return now;
  return before.map(({ resources: _, resizePolicy: __, ...container }, index) => {
    const { resources, resizePolicy } = now[index];
    return { ...container, ...(resources && { resources }), ...(resizePolicy && { resizePolicy }) };
  });
};

/** The fixed suffix that the imitated API server gives names from generateName; a real one draws a random suffix. */
export const generatedSuffix = "x7d4k";
const longestPrefix = 58;

/** Groups of review objects, such as SubjectAccessReview, which are not stored. */
const unstored = new Set(["authentication.k8s.io", "authorization.k8s.io"]);

/** Sets the uid, creationTimestamp and generated name of a new object, as the API server does before validation. */
export const assignGeneratedMetadata = (attributes: AdmissionAttributes): AdmissionAttributes => {
  const { operation, object, name, namespace, kind, subResource, resource } = attributes;
  if (operation !== "CREATE" || subResource || !isMap(object) || unstored.has(resource.group)) return attributes;
  const metadata = isMap(object.metadata) ? object.metadata : {};
  const { generateName } = metadata;
  const hasGeneratedName = !name && !metadata.name && typeof generateName === "string" && generateName !== "";
  const generated = hasGeneratedName ? { name: `${generateName.slice(0, longestPrefix)}${generatedSuffix}` } : {};
  const uid = computeUid({ apiVersion: joinApiVersion(kind), kind: kind.kind, namespace, name });
  const creationTimestamp = formatCurrentTime();
  return {
    ...attributes,
    ...generated,
    object: { ...object, metadata: { ...metadata, ...generated, uid, creationTimestamp } },
  };
};
