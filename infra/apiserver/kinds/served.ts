import type { Capabilities, ServedResource } from "#lib/needs.ts";
import { splitApiVersion } from "#lib/objects/api-version.ts";
import { createRecordedCapabilities, type RecordedCapabilityAnswers } from "#lib/recording/recorded-answers.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { inferKinds, type KindsByName, toKindKey, toServedResource } from "./kinds.ts";

/** Returns the kinds of `inferKinds`. One that isn't served by default is included only if there are objects of it. */
export const inferServedKinds = (objects: readonly KubernetesObject[], kubernetes?: string): KindsByName => {
  const present = new Set(objects.map(({ apiVersion = "", kind = "" }) => toKindKey(apiVersion, kind)));
  const kinds = [...inferKinds(objects, kubernetes)];
  return new Map(kinds.filter(([name, { isServedByDefault }]) => isServedByDefault || present.has(name)));
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
 * Returns the functions through which a rule reads a cluster; they answer from recorded objects. Which kinds the
 * cluster serves follows from these objects, from the recorded discovery, and from the minor of Kubernetes.
 */
export const createRecordedCluster = (answers: RecordedCapabilityAnswers, kubernetes?: string): Capabilities => {
  const discovery = { ...listServedResources(answers.objects ?? [], kubernetes), ...answers.discovery };
  // A CustomResourceDefinition may set another plural than the one that Kubernetes would form.
  const plurals = Object.entries(discovery).flatMap(([apiVersion, kinds]) =>
    kinds.map(({ resource, kind }) => [`${splitApiVersion(apiVersion).group}/${kind}`, resource] as const),
  );
  return createRecordedCapabilities({
    ...answers,
    discovery,
    plurals: { ...Object.fromEntries(plurals), ...answers.plurals },
  });
};
