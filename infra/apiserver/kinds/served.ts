import type { Capabilities, ResourceType, ServedResource } from "#lib/needs.ts";
import { createRecordedCapabilities, type RecordedCapabilityAnswers, toPlural } from "#lib/recorded-answers.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { inferKinds, type KindsByName, toKindKey, toServedResource } from "./kinds.ts";

/** Returns the kinds of `inferKinds`. One that is off by default is included only if there are objects of it. */
export const inferServedKinds = (objects: readonly KubernetesObject[], kubernetes?: string): KindsByName => {
  const present = new Set(objects.map(({ apiVersion = "", kind = "" }) => toKindKey(apiVersion, kind)));
  return new Map([...inferKinds(objects, kubernetes)].filter(([name, { off }]) => !off || present.has(name)));
};

/** Returns the kinds of `inferServedKinds` by group and version. */
export const listServedResources = (
  objects: readonly KubernetesObject[],
  kubernetes?: string,
): Record<string, ServedResource[]> => {
  const byVersion = Map.groupBy(inferServedKinds(objects, kubernetes), ([name]) => name.slice(0, name.indexOf(" ")));
  return Object.fromEntries(
    [...byVersion].map(([version, all]) => [version, all.map(([, kind]) => toServedResource(kind))]),
  );
};

export const findServedResource = (
  served: Record<string, ServedResource[]>,
  { apiVersion = "", kind }: KubernetesObject,
) => (Object.hasOwn(served, apiVersion) ? served[apiVersion]?.find((resource) => resource.kind === kind) : undefined);

/**
 * Returns capabilities that answer from recorded objects. Kinds follow from these, from the recorded discovery, and from
 * the minor of Kubernetes.
 */
export const createRecordedCluster = (answers: RecordedCapabilityAnswers, kubernetes?: string): Capabilities => {
  const discovery = { ...listServedResources(answers.objects ?? [], kubernetes), ...answers.discovery };
  const { get, list, create, updateStatus, ...rest } = createRecordedCapabilities({ ...answers, discovery });
  // The imitated server stores objects under the plural that Kubernetes would form of their kind; a
  // CustomResourceDefinition may set another one.
  const usual = new Map(
    Object.entries(discovery).flatMap(([apiVersion, kinds]) =>
      kinds.map(({ resource, kind }) => [`${getGroup(apiVersion)}/${resource}`, toPlural(kind)] as const),
    ),
  );
  const toStoredType = ({ group, resource, ...rest }: ResourceType): ResourceType => {
    return { ...rest, group, resource: usual.get(`${group}/${resource}`) ?? resource };
  };
  return {
    ...rest,
    get: (kind, ...rest) => get(toStoredType(kind), ...rest),
    list: (kind, ...rest) => list(toStoredType(kind), ...rest),
    create: (kind, ...rest) => create(toStoredType(kind), ...rest),
    updateStatus: (kind, ...rest) => updateStatus(toStoredType(kind), ...rest),
  };
};

const getGroup = (apiVersion: string) => (apiVersion.includes("/") ? apiVersion.split("/", 1)[0] : "");
