import type { TypedTest } from "../cel/values.ts";
import { isMap, isObject } from "../json.ts";
import { splitApiVersion } from "../objects/api-version.ts";

const addK8sIo = (names: string): string[] => names.split(" ").map((name) => `${name}.k8s.io`);

/** The groups of kinds that upstream reads with typed clients. Such a client leaves out apiVersion and kind. */
export const typedGroups: readonly string[] = [
  "",
  "apps",
  "autoscaling",
  "batch",
  "extensions",
  "policy",
  ...addK8sIo(
    "admissionregistration authentication authorization certificates coordination discovery events node resource",
  ),
  ...addK8sIo(
    "flowcontrol.apiserver internal.apiserver networking rbac.authorization scheduling storage storagemigration",
  ),
];

/** The groups of kinds for which the API server has types, but no typed clients. */
const otherGroups = addK8sIo("apiextensions apiregistration lifecycle");

export const isBuiltInGroup = (group: string): boolean => typedGroups.includes(group) || otherGroups.includes(group);

const isBuiltIn = (value: object): boolean =>
  !isMap(value) || typeof value.apiVersion !== "string" || isBuiltInGroup(splitApiVersion(value.apiVersion).group);

/**
 * Returns a function that reports whether upstream evaluates a map or a list as a typed Go value, because it is a part
 * of one of the objects that `listRoots` returns. Custom resources are left out, because upstream has no Go types for
 * them. The parts are collected at the first call, because most evaluations don't call it.
 */
export const createTypedTest = (listRoots: () => readonly unknown[]): TypedTest => {
  let parts: Set<object> | undefined;
  return (value) => {
    parts ??= collectParts(listRoots().filter(isObject).filter(isBuiltIn));
    return parts.has(value);
  };
};

/** Collects values and all maps and lists in them. It doesn't recurse: any depth is safe. */
const collectParts = (roots: readonly object[]): Set<object> => {
  const parts = new Set(roots);
  // The loop also visits the elements that it adds.
  for (const part of parts) for (const member of Object.values(part)) if (isObject(member)) parts.add(member);
  return parts;
};
