import { isMap, isObject, type Json } from "#lib/json.ts";
import { splitApiVersion } from "#lib/objects/api-version.ts";

/**
 * What a patch made, as an API server reads it where nothing is known of the kind: nobody stores what is null in one of
 * Kubernetes' own kinds, nor labels and the like that are empty. In a custom resource everything stays as it is written.
 */
export const decoded = (object: unknown): unknown => {
  if (!isMap(object) || !isOwn(object)) return object;
  const read = withoutNulls(object) as Json;
  if (!isMap(read.metadata)) return read;
  const kept = Object.entries(read.metadata).filter(([key, value]) => !(omitted.has(key) && isEmpty(value)));
  return { ...read, metadata: Object.fromEntries(kept) };
};

const omitted = new Set(["labels", "annotations", "finalizers", "ownerReferences"]);

const isEmpty = (value: unknown): boolean => isObject(value) && Object.keys(value).length === 0;

/** Whether an object is of a group that Kubernetes has for itself. */
export const isOwn = ({ apiVersion }: Json): boolean => {
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
