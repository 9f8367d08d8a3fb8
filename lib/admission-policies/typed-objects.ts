import type { TypedTest } from "../cel/values.ts";
import { isMap, isObject } from "../json.ts";
import { splitApiVersion } from "../objects/api-version.ts";

const addEnd = (names: string): string[] => names.split(" ").map((name) => `${name}.k8s.io`);

/** The groups of kinds that upstream reads by typed clients: these leave out apiVersion and kind of an object. */
export const typedGroups: readonly string[] = [
  "",
  "apps",
  "autoscaling",
  "batch",
  "extensions",
  "policy",
  ...addEnd(
    "admissionregistration authentication authorization certificates coordination discovery events node resource",
  ),
  ...addEnd(
    "flowcontrol.apiserver internal.apiserver networking rbac.authorization scheduling storage storagemigration",
  ),
];

/** The groups of kinds that the API server has types for, but no typed clients. */
const otherGroups = addEnd("apiextensions apiregistration lifecycle");

export const isBuiltInGroup = (group: string): boolean => typedGroups.includes(group) || otherGroups.includes(group);

const isBuiltIn = (value: object): boolean =>
  !isMap(value) || typeof value.apiVersion !== "string" || isBuiltInGroup(splitApiVersion(value.apiVersion).group);

/**
 * Returns a function that reports whether a map or a list is part of one of these values; custom resources don't count.
 * Its first call goes through the values: only comparisons of values of different types call it.
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
