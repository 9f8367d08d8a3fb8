import { randomUUID } from "node:crypto";
import { isMap } from "#lib/json.ts";
import { isOwn } from "./decoding.ts";
import type { Around, Attributes } from "./trace.ts";

/**
 * What is left of an object where but a part of it is written, before hooks that validate see it. A scale is made of the
 * object that it is about, and the number alone is taken of it; with a status, nothing else changes that matters.
 */
export const prepared = ({ subResource, kind, oldObject }: Attributes, object: unknown): unknown => {
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

/** Whose objects are questions, which nobody keeps. */
const unstored = new Set(["authentication.k8s.io", "authorization.k8s.io"]);

/** Before hooks that validate are called, what is new gets a name where it has but a prefix, an identity and a time of birth. */
export const born = (attributes: Attributes, { uid = randomUUID }: Around): Attributes => {
  const { operation, object, name, subResource, resource } = attributes;
  if (operation !== "CREATE" || subResource || !isMap(object) || unstored.has(resource.group)) return attributes;
  const metadata = isMap(object.metadata) ? object.metadata : {};
  const { generateName } = metadata;
  const isNamed = name || metadata.name || typeof generateName !== "string" || generateName === "";
  const made = isNamed ? name : `${generateName.slice(0, longestPrefix)}${suffix}`;
  const creationTimestamp = new Date().toISOString().replace(/\.\d+/, "");
  const own = { ...(!isNamed && { name: made }), uid: uid(), creationTimestamp };
  return { ...attributes, ...(made && { name: made }), object: { ...object, metadata: { ...metadata, ...own } } };
};
