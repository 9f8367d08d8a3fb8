import { joinApiVersion, splitApiVersion } from "#lib/objects/api-version.ts";
import { standard } from "./kinds.ts";

/** Reports whether a CustomResourceDefinition may define kinds in a group: domain names that aren't Kubernetes' own. */
export const isDefinable = (group: string): boolean => group.includes(".") && !groups.has(group);

export const unknownKind = (apiVersion: string, kind: string): string => {
  if (isDefinable(splitApiVersion(apiVersion).group))
    return `which resource ${kind} of ${apiVersion} is, only its CustomResourceDefinition says; it may be among the manifests or in --state`;
  return `what ${kind} of ${apiVersion} is; Kubernetes 1.36 has none${butSimilarKinds(kind)}`;
};

/** Names, after a comma, the kinds of Kubernetes that differ only in case; empty if there are none. */
export const butSimilarKinds = (kind: string): string => {
  const alike = usual.filter((one) => one.kind.toLowerCase() === kind.toLowerCase());
  const meant = alike.map((one) => `${one.kind} of ${joinApiVersion(one)}`).join(" and ");
  return meant === "" ? "" : `, but ${meant}`;
};

const usual = standard.filter(({ off }) => !off).map(({ kind }) => kind);
const groups = new Set(usual.map(({ group }) => group));
