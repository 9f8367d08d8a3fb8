import { isMap, toList, toMap } from "#lib/json.ts";
import type { ServedResource } from "#lib/needs.ts";
import { joinApiVersion, splitApiVersion } from "#lib/objects/api-version.ts";
import { policyGroup } from "#lib/policy/types.ts";
import { toPlural } from "#lib/recording/recorded-answers.ts";
import type { GroupVersionKind, GroupVersionResource, KubernetesObject } from "#lib/review.ts";
import { newestKubernetes, parseMinor } from "#lib/since.ts";
import { selectMinor } from "../minors.ts";
import builtIn from "./kinds.json" with { type: "json" };
import olderBuiltIn from "./older-kinds.json" with { type: "json" };

/** A kind that API servers serve, and how they serve it. */
export interface ResourceKind {
  kind: GroupVersionKind;
  resource: GroupVersionResource;
  namespaced: boolean;
  subresources: readonly string[];
  isServedByDefault: boolean;
  /** True if all versions of a custom resource have the same fields: a conversion changes only apiVersion. */
  sameFieldsInAllVersions: boolean;
}

/** The kinds that a minor of Kubernetes serves, and those of custom resources. */
export interface KindIndex {
  of(apiVersion: string, kind: string): ResourceKind | undefined;
  /** Returns the API versions of a group in which API servers serve a kind by default. */
  listApiVersions(group: string, kind: string): string[];
  equivalents(resource: GroupVersionResource): readonly GroupVersionResource[];
  discover(groupVersion: string): ServedResource[] | undefined;
  /** Converts an object if only its apiVersion changes; otherwise returns undefined. */
  convert(object: unknown, to: GroupVersionKind): unknown;
}

/** Kinds by the keys that `toKindKey` forms of apiVersion and kind. */
export type KindsByName = ReadonlyMap<string, ResourceKind>;

/** A kind as the file of built-in kinds describes it. */
interface KindDescription {
  resource: string;
  namespaced: boolean;
  subresources?: readonly string[];
  /** True if API servers don't serve the kind by default. */
  off?: boolean;
}

/**
 * Returns the built-in kinds of a minor of Kubernetes, by default the newest, and the kinds that
 * CustomResourceDefinitions among the objects define.
 */
export const buildKindIndex = (objects: Iterable<unknown>, kubernetes?: string): KindIndex =>
  createKindIndex(collectKinds(objects, kubernetes));

/** Returns functions that find kinds by name, by resource or by API version. */
export const createKindIndex = (byName: KindsByName): KindIndex => {
  const byResource = Map.groupBy(byName.values(), ({ resource }) => `${resource.group}/${resource.resource}`);
  const byVersion = Map.groupBy(byName.values(), ({ kind }) => joinApiVersion(kind));
  const listEquivalents = (resource: GroupVersionResource) => {
    const name = `${resource.group}/${resource.resource}`;
    const names = eventResources.includes(name) ? eventResources : [name];
    return names
      .flatMap((one) => byResource.get(one) ?? [])
      .filter((other) => other.isServedByDefault && joinApiVersion(other.resource) !== joinApiVersion(resource))
      .map((kind) => kind.resource);
  };
  const equivalents = new WeakMap<GroupVersionResource, readonly GroupVersionResource[]>();
  return {
    of: (apiVersion, kind) => byName.get(toKindKey(apiVersion, kind)),
    listApiVersions: (group, kind) =>
      [...byName.values()]
        .filter((one) => one.isServedByDefault && one.kind.group === group && one.kind.kind === kind)
        .map((one) => joinApiVersion(one.kind)),
    equivalents: (resource) => {
      const found = equivalents.get(resource) ?? listEquivalents(resource);
      equivalents.set(resource, found);
      return found;
    },
    discover: (groupVersion) => byVersion.get(groupVersion)?.map(toServedResource),
    convert: (object, to) => {
      const kind = isMap(object) && byName.get(toKindKey(String(object.apiVersion), String(object.kind)));
      if (!kind) return undefined;
      const apiVersion = joinApiVersion(to);
      if (object.apiVersion === apiVersion) return object;
      const isSame =
        kind.sameFieldsInAllVersions && kind.kind.group === to.group && byName.has(toKindKey(apiVersion, to.kind));
      return isSame ? { ...object, apiVersion } : undefined;
    },
  };
};

/**
 * Returns the built-in kinds, those that CustomResourceDefinitions among the objects define, and guesses for the other
 * objects: with the plural that Kubernetes would form, and namespaced if one of the objects has a namespace.
 */
export const inferKinds = (objects: readonly KubernetesObject[], kubernetes?: string): KindsByName => {
  const kinds = new Map(collectKinds(objects, kubernetes));
  // Objects with a namespace come first, because they show that a kind is namespaced.
  const namespacedFirst = objects.toSorted((left, right) => Number(hasNamespace(right)) - Number(hasNamespace(left)));
  for (const object of namespacedFirst) {
    const { apiVersion = "", kind = "" } = object;
    const name = toKindKey(apiVersion, kind);
    if (kinds.has(name)) continue;
    const guess = { resource: toPlural(kind), namespaced: hasNamespace(object) };
    kinds.set(name, createResourceKind(splitApiVersion(apiVersion), kind, guess));
  }
  return kinds;
};

export const toKindKey = (apiVersion: string, kind: string) => `${apiVersion} ${kind}`;

/**
 * Returns the kind of the resource in a path such as `deployments/scale`. The object of such a request may have a kind of
 * another group: a Scale of autoscaling/v1. A kind of the object's version comes first.
 */
export const findKindOfSubresource = (
  kinds: KindsByName,
  path: string,
  objectVersion?: string,
): ResourceKind | undefined => {
  const [resource, subresource = ""] = path.split("/");
  const found = [...kinds.values()].filter((kind) => kind.resource.resource === resource);
  const ofObject = found.find(({ kind }) => joinApiVersion(kind) === objectVersion);
  return ofObject ?? found.find(({ subresources }) => subresources.includes(subresource)) ?? found[0];
};

export const toServedResource = ({
  kind: { kind },
  resource: { resource },
  namespaced,
}: ResourceKind): ServedResource => {
  return { resource, kind, namespaced };
};

const hasNamespace = ({ metadata }: KubernetesObject) => Boolean(metadata?.namespace);

/** Kubernetes serves events, and only events, under two groups. */
const eventResources = ["/events", "events.k8s.io/events"];

const createResourceKind = (
  { group, version }: { group: string; version: string },
  kind: string,
  { resource, namespaced, subresources = [], off = false }: KindDescription,
  sameFieldsInAllVersions = false,
): ResourceKind => ({
  kind: { group, version, kind },
  resource: { group, version, resource },
  namespaced,
  subresources,
  isServedByDefault: !off,
  sameFieldsInAllVersions,
});

/** Collects the built-in kinds of a minor, and the kinds that CustomResourceDefinitions among the objects define. */
const collectKinds = (objects: Iterable<unknown>, kubernetes?: string): KindsByName => {
  const kinds = new Map(listStandardKinds(kubernetes).map(toKindEntry));
  for (const [name, kind] of [...objects].flatMap(listDefinedKinds).map(toKindEntry)) {
    // A CustomResourceDefinition can't replace a kind of Kubernetes. It does replace a kind of the policy engine
    // kinitiras, because these kinds are known here even without a CustomResourceDefinition.
    const isOfKinitiras = kind.kind.group === policyGroup;
    if (isOfKinitiras || !kinds.has(name)) kinds.set(name, kind);
  }
  return kinds;
};

/** Returns the kinds of all known minors of Kubernetes, and those of CustomResourceDefinitions among the objects. */
export const listKindsOfAllMinors = (objects: readonly unknown[]): ResourceKind[] =>
  [newestKubernetes, ...Object.keys(olderBuiltIn)].flatMap((minor) => [...collectKinds(objects, minor).values()]);

/** The kinds of the kinitiras policy engine, served only where it is installed. */
const policies: Record<string, KindDescription> = {
  ClusterOverridePolicy: { resource: "clusteroverridepolicies", namespaced: false, off: true },
  ClusterValidatePolicy: { resource: "clustervalidatepolicies", namespaced: false, off: true },
  OverridePolicy: { resource: "overridepolicies", namespaced: true, off: true },
};

/** Returns the built-in kinds of a minor of Kubernetes, or of the newest. */
const listStandardKinds = (kubernetes?: string): readonly ResourceKind[] => {
  const found = standardKindsByMinor.get(kubernetes) ?? createStandardKinds(kubernetes);
  standardKindsByMinor.set(kubernetes, found);
  return found;
};

/** Returns the kinds that an API server of this minor serves, and the kinds of policies for the engine kinitiras. */
const createStandardKinds = (kubernetes?: string): ResourceKind[] => {
  const kubernetesKinds: Record<string, Record<string, KindDescription>> = selectMinor(
    builtIn,
    olderBuiltIn,
    kubernetes,
  );
  const all = { ...kubernetesKinds, [`${policyGroup}/v1alpha1`]: policies };
  return Object.entries(all).flatMap(([apiVersion, kinds]) =>
    Object.entries(kinds).map(([kind, described]) => createResourceKind(splitApiVersion(apiVersion), kind, described)),
  );
};

const standardKindsByMinor = new Map<string | undefined, readonly ResourceKind[]>();

/** The built-in kinds of the newest minor of Kubernetes. */
export const standardKinds = listStandardKinds();

const toKindEntry = (resourceKind: ResourceKind): [string, ResourceKind] => {
  const { kind: groupVersionKind } = resourceKind;
  return [toKindKey(joinApiVersion(groupVersionKind), groupVersionKind.kind), resourceKind];
};

/** Returns the kinds that a CustomResourceDefinition defines; none for any other object. */
const listDefinedKinds = (object: unknown): ResourceKind[] => {
  const { apiVersion, kind: kindOfObject, spec } = toMap(object);
  if (kindOfObject !== "CustomResourceDefinition" || !String(apiVersion).startsWith("apiextensions.k8s.io/")) return [];
  const { group, scope, names, versions, conversion } = toMap(spec);
  const { kind, plural: resource } = toMap(names);
  if (typeof group !== "string" || typeof kind !== "string" || typeof resource !== "string") return [];
  const isConvertedWithoutWebhook = (toMap(conversion).strategy ?? "None") === "None";
  return toList(versions).flatMap((element): ResourceKind[] => {
    const { name: version, served, subresources } = toMap(element);
    if (typeof version !== "string" || served === false) return [];
    const servedSubresources = ["status", "scale"].filter((name) => toMap(subresources)[name] !== undefined);
    const described = { resource, namespaced: scope === "Namespaced", subresources: servedSubresources };
    return [createResourceKind({ group, version }, kind, described, isConvertedWithoutWebhook)];
  });
};

/** Reports whether a CustomResourceDefinition may define kinds in a group: domain names that aren't Kubernetes' own. */
export const isCustomResourceGroup = (group: string): boolean => group.includes(".") && !builtInGroups.has(group);

/**
 * Says that API servers of a minor don't serve a kind, or that the CustomResourceDefinition of a kind doesn't serve this
 * version; undefined or an empty text if a CustomResourceDefinition that isn't known may define the kind.
 */
export const describeMissingKind = (
  apiVersion: string,
  kind: string,
  kinds: KindIndex,
  kubernetes: string = newestKubernetes,
): string | undefined => {
  const { group } = splitApiVersion(apiVersion);
  if (isCustomResourceGroup(group)) {
    const served = kinds.listApiVersions(group, kind).join(" or ");
    return served && `the CustomResourceDefinition of ${kind} doesn't serve ${apiVersion}; write ${served}`;
  }
  const similarKinds = describeSimilarKinds(kind, kubernetes);
  const otherMinor = similarKinds === "" ? findMinorWithKind(apiVersion, kind) : undefined;
  // A CustomResourceDefinition may also define a kind in a group of Kubernetes with a dot, such as networking.k8s.io,
  // but not in an API version that Kubernetes itself serves, such as networking.k8s.io/v1. And if Kubernetes has a
  // similar kind, or another minor has this kind, that one is meant.
  const servedKinds = listStandardKinds(kubernetes).filter(({ isServedByDefault }) => isServedByDefault);
  const isServedVersion = servedKinds.some((served) => joinApiVersion(served.kind) === apiVersion);
  const mayBeDefined = group.includes(".") && !isServedVersion && similarKinds === "" && otherMinor === undefined;
  if (mayBeDefined) return undefined;
  const other = otherMinor === undefined ? "" : `; Kubernetes ${otherMinor} has it`;
  return `Kubernetes ${kubernetes} has no ${kind} of ${apiVersion}${similarKinds}${other}`;
};

/** Returns the first known minor of Kubernetes that has a kind. */
const findMinorWithKind = (apiVersion: string, kind: string): string | undefined =>
  [...Object.keys(olderBuiltIn), newestKubernetes]
    .toSorted((left, right) => parseMinor(left) - parseMinor(right))
    .find((minor) => listStandardKinds(minor).some((one) => toKindEntry(one)[0] === toKindKey(apiVersion, kind)));

/** Returns the end of a line such as "undecided  what Goose of v1 is; Kubernetes 1.37 has none". */
export const describeUnknownKind = (apiVersion: string, kind: string, kubernetes?: string): string => {
  if (isCustomResourceGroup(splitApiVersion(apiVersion).group))
    return `which resource ${kind} of ${apiVersion} is; add its CustomResourceDefinition to the manifests or to --state`;
  return `what ${kind} of ${apiVersion} is; Kubernetes ${kubernetes ?? newestKubernetes} has none`;
};

/**
 * Returns a clause such as `; write Ingress of networking.k8s.io/v1`, for the kinds of Kubernetes that have this name,
 * in lower or upper case, and that API servers serve by default; empty if there are none.
 */
export const describeSimilarKinds = (kind: string, kubernetes?: string): string => {
  const alike = listStandardKinds(kubernetes).filter(
    (standard) => standard.isServedByDefault && standard.kind.kind.toLowerCase() === kind.toLowerCase(),
  );
  const meant = alike.map((match) => `${match.kind.kind} of ${joinApiVersion(match.kind)}`).join(" or ");
  return meant === "" ? "" : `; write ${meant}`;
};

const builtInGroups = new Set(
  standardKinds.filter(({ isServedByDefault }) => isServedByDefault).map(({ kind }) => kind.group),
);
