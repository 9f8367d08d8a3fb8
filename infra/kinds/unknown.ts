import { apiVersionOf, groupVersionOf, standard } from "./kinds.ts";

/** What there is to say of a kind that nobody here knows, and what may be meant instead. */
export const unknownKind = (apiVersion: string, kind: string): string => {
  if (isOfCustomGroup(apiVersion))
    return `which resource ${kind} of ${apiVersion} is, only its CustomResourceDefinition says; it may be among the manifests or in --state`;
  return `what ${kind} of ${apiVersion} is; Kubernetes 1.36 has none${butSimilarKinds(kind)}`;
};

/** Names the kinds of Kubernetes that may be meant by one that it doesn't have, after a comma; empty where there are none. */
export const butSimilarKinds = (kind: string): string => {
  const alike = usual.filter((one) => one.kind.toLowerCase() === kind.toLowerCase());
  const meant = alike.map((one) => `${one.kind} of ${apiVersionOf(one)}`).join(" and ");
  return meant === "" ? "" : `, but ${meant}`;
};

/** Reports whether only a CustomResourceDefinition can define kinds of this group, which has a domain's name. */
export const isOfCustomGroup = (apiVersion: string): boolean => {
  const { group } = groupVersionOf(apiVersion);
  return group.includes(".") && !groups.has(group);
};

const usual = standard.filter(({ off }) => !off).map(({ kind }) => kind);
const groups = new Set(usual.map(({ group }) => group));
