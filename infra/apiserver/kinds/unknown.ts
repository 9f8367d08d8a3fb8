import { joinApiVersion, splitApiVersion } from "#lib/objects/api-version.ts";
import { standard } from "./kinds.ts";

/** Reports whether a CustomResourceDefinition can define kinds in a group: the group has a domain's name that is not Kubernetes' own. */
export const isDefinable = (group: string): boolean => group.includes(".") && !groups.has(group);

/** What there is to say of a kind that nobody here knows, and what may be meant instead. */
export const unknownKind = (apiVersion: string, kind: string): string => {
  if (isDefinable(splitApiVersion(apiVersion).group))
    return `which resource ${kind} of ${apiVersion} is, only its CustomResourceDefinition says; it may be among the manifests or in --state`;
  return `what ${kind} of ${apiVersion} is; Kubernetes 1.36 has none${butSimilarKinds(kind)}`;
};

/** Names the kinds of Kubernetes that may be meant by one that it doesn't have, after a comma; empty where there are none. */
export const butSimilarKinds = (kind: string): string => {
  const alike = usual.filter((one) => one.kind.toLowerCase() === kind.toLowerCase());
  const meant = alike.map((one) => `${one.kind} of ${joinApiVersion(one)}`).join(" and ");
  return meant === "" ? "" : `, but ${meant}`;
};

const usual = standard.filter(({ off }) => !off).map(({ kind }) => kind);
const groups = new Set(usual.map(({ group }) => group));
