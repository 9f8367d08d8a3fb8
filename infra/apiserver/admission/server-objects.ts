import { randomUUID } from "node:crypto";
import { isMap, isObject, isSame, type Json, own } from "#lib/json.ts";
import { splitApiVersion } from "#lib/objects/api-version.ts";
import type { Attributes } from "./types.ts";

// What an API server does to objects between webhooks: reads them, compares them, and prepares them for storage.

/**
 * Reads what a patch made, as an API server does: Kubernetes' own kinds lose what is null, and empty labels and the like.
 * A custom resource stays as it is written.
 */
export const readObject = (object: unknown): unknown => {
  if (!isMap(object) || !isOwn(object)) return object;
  const read = withoutNulls(object) as Json;
  if (!isMap(read.metadata)) return read;
  const kept = Object.entries(read.metadata).filter(([key, value]) => !(omitted.has(key) && isEmpty(value)));
  return { ...read, metadata: Object.fromEntries(kept) };
};

const omitted = new Set(["labels", "annotations", "finalizers", "ownerReferences"]);

const isEmpty = (value: unknown): boolean => isObject(value) && Object.keys(value).length === 0;

/** Reports whether an object is of a group that Kubernetes has for itself. */
const isOwn = ({ apiVersion }: Json): boolean => {
  const { group } = splitApiVersion(String(apiVersion));
  return !group.includes(".") || group.endsWith(".k8s.io");
};

/** What has none in it is shared with what was given. */
const withoutNulls = (value: unknown): unknown => {
  if (Array.isArray(value)) {
    const read = value.map(withoutNulls);
    return read.every((one, index) => one === value[index]) ? value : read;
  }
  if (!isMap(value)) return value;
  const entries = Object.entries(value);
  const kept = entries.filter(([, one]) => one !== null).map(([key, one]) => [key, withoutNulls(one)] as const);
  const isWhole = kept.length === entries.length && kept.every(([, one], index) => one === entries[index]?.[1]);
  return isWhole ? value : Object.fromEntries(kept);
};

/**
 * Reports whether two objects are the same to an API server that has read them. What it has no types for is as it is written; in
 * its own kinds, what is null or empty is as if it weren't there.
 */
export const isSameToServer = (one: unknown, other: unknown): boolean =>
  isMap(one) && !isOwn(one) ? isSame(one, other) : isSameObject(one, other);

/** Members that are maps in Kubernetes' types, where an empty one is as good as none. */
const maps = new Set(
  "labels annotations data binaryData stringData matchLabels nodeSelector limits requests capacity selector".split(" "),
);

/** As far as an object of a kind of Kubernetes' own goes: what is null, or a list or labels and the like without any member, isn't there. */
const isSameObject = (one: unknown, other: unknown, key = ""): boolean => {
  if (one === other) return true;
  if (isNothing(one, key) || isNothing(other, key)) return isNothing(one, key) && isNothing(other, key);
  if (Array.isArray(one) || Array.isArray(other))
    return (
      Array.isArray(one) &&
      Array.isArray(other) &&
      one.length === other.length &&
      one.every((element, index) => isSameObject(element, other[index]))
    );
  if (!isMap(one) || !isMap(other)) return false;
  return (
    Object.keys(one).every((name) => isSameObject(one[name], own(other, name), name)) &&
    Object.keys(other).every((name) => Object.hasOwn(one, name) || isNothing(other[name], name))
  );
};

const isNothing = (value: unknown, key: string): boolean =>
  value === undefined ||
  value === null ||
  (Array.isArray(value) && value.length === 0) ||
  (maps.has(key) && isMap(value) && Object.keys(value).length === 0);

/**
 * Reports whether any patch makes another object of it, even one that changes nothing: who wrote which fields is noted with a time
 * that is finer than what JSON holds, and the API server compares what it had in memory with what it reads.
 */
export const isStamped = ({ operation, object, oldObject, subResource }: Attributes): boolean => {
  if (!isMap(object) || !isMap(object.metadata) || !isOwn(object) || !/^(CREATE|UPDATE)$/.test(operation)) return false;
  const { managedFields } = object.metadata;
  if (Array.isArray(managedFields)) {
    const { managedFields: before } = isMap(oldObject) && isMap(oldObject.metadata) ? oldObject.metadata : {};
    const earlier: unknown[] = Array.isArray(before) ? before : [];
    return managedFields.some((one) => !earlier.some((other) => isSame(one, other)));
  }
  if (subResource && subResource !== "status") return false;
  return hasContent(object) && (operation === "CREATE" || !isSameObject(unmanaged(object), unmanaged(oldObject)));
};

const unowned = new Set(
  "name generateName namespace uid resourceVersion generation creationTimestamp deletionTimestamp selfLink".split(" "),
);

/** What nobody owns a field of, nobody is noted for. */
const hasContent = ({ metadata, apiVersion, kind, status, ...rest }: Json): boolean =>
  Object.keys(rest).length > 0 || Object.keys(Object(metadata)).some((key) => !unowned.has(key));

/** Without what follows from its being written. */
const unmanaged = (object: unknown): unknown => {
  if (!isMap(object) || !isMap(object.metadata)) return object;
  const { resourceVersion, generation, ...metadata } = object.metadata;
  return { ...object, metadata };
};

/**
 * Returns an object as validating hooks see it where only a part of it is written. A scale is made of the
 * object that it is about, and the number alone is taken of it; with a status, nothing else changes that matters.
 */
export const withoutUnwritten = ({ subResource, kind, oldObject }: Attributes, object: unknown): unknown => {
  if (!isMap(object) || !isMap(object.metadata)) return object;
  if (subResource === "scale" && kind.kind === "Scale") {
    const { labels, annotations, finalizers, ownerReferences, ...metadata } = object.metadata;
    return { ...object, metadata };
  }
  if (subResource !== "status" || !isMap(oldObject) || !isMap(oldObject.metadata)) return object;
  const { spec, ...rest } = object;
  const before = oldObject.spec === undefined ? {} : { spec: oldObject.spec };
  if (!isOwn(object)) return { ...rest, ...before, metadata: oldObject.metadata };
  if (kind.group !== "apps") return { ...rest, ...before };
  const { labels, ...metadata } = object.metadata;
  const { labels: kept } = oldObject.metadata;
  return { ...rest, ...before, metadata: { ...metadata, ...(kept !== undefined && { labels: kept }) } };
};

/** Any suffix that the API server could draw. */
const suffix = "x7d4k";
const longestPrefix = 58;

/** Groups whose objects are questions, which are not stored. */
const unstored = new Set(["authentication.k8s.io", "authorization.k8s.io"]);

/** Gives a new object its uid and creation time, and a name where it has only a prefix, as before validation. */
export const assignIdentity = (attributes: Attributes): Attributes => {
  const { operation, object, name, subResource, resource } = attributes;
  if (operation !== "CREATE" || subResource || !isMap(object) || unstored.has(resource.group)) return attributes;
  const metadata = isMap(object.metadata) ? object.metadata : {};
  const { generateName } = metadata;
  const isNamed = name || metadata.name || typeof generateName !== "string" || generateName === "";
  const made = isNamed ? name : `${generateName.slice(0, longestPrefix)}${suffix}`;
  const creationTimestamp = new Date().toISOString().replace(/\.\d+/, "");
  const own = { ...(!isNamed && { name: made }), uid: randomUUID(), creationTimestamp };
  return { ...attributes, ...(made && { name: made }), object: { ...object, metadata: { ...metadata, ...own } } };
};
