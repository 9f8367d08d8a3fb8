import type { TypedTest } from "../cel/values.ts";
import { isMap, isObject } from "../json.ts";
import { splitApiVersion } from "../objects/api-version.ts";

/** The groups of kinds that upstream reads by typed clients: these leave out apiVersion and kind of an object. */
export const typedGroups: readonly string[] = [
  ...["", "admissionregistration.k8s.io", "apps", "authentication.k8s.io", "authorization.k8s.io", "autoscaling"],
  ...["batch", "certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", "extensions"],
  ...["flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io", "policy"],
  ...["rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io"],
  "storagemigration.k8s.io",
];

/** The groups of kinds that the API server has types for, but no typed clients. */
const otherGroups = ["apiextensions.k8s.io", "apiregistration.k8s.io", "lifecycle.k8s.io"];

const isBuiltIn = (value: object): boolean => {
  if (!isMap(value) || typeof value.apiVersion !== "string") return true;
  const { group } = splitApiVersion(value.apiVersion);
  return typedGroups.includes(group) || otherGroups.includes(group);
};

/**
 * Returns what reports whether a map or a list is part of one of these values; custom resources don't count. They are gone
 * through when it is asked for the first time: only comparisons of values of different types ask.
 */
export const createTypedTest = (roots: readonly unknown[]): TypedTest => {
  let parts: Set<object> | undefined;
  return (value) => {
    parts ??= collectParts(roots.filter(isObject).filter(isBuiltIn));
    return parts.has(value);
  };
};

/** Doesn't recurse: any depth is safe. */
const collectParts = (roots: readonly object[]): Set<object> => {
  const parts = new Set(roots);
  // A set also lists what is added meanwhile.
  for (const part of parts) for (const member of Object.values(part)) if (isObject(member)) parts.add(member);
  return parts;
};
