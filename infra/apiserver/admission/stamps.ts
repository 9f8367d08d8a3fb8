import { isMap, isSame, type Json } from "#lib/json.ts";
import { isOwn } from "./decoding.ts";
import { isSameObject } from "./same.ts";
import type { Attributes } from "./trace.ts";

/**
 * Whether any patch makes another object of it, even one that changes nothing: who wrote which fields is noted with a time
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
