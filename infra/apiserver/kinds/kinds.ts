import { isMap } from "#lib/json.ts";
import type { Served } from "#lib/needs.ts";
import { joinApiVersion, splitApiVersion } from "#lib/objects/api-version.ts";
import { policyGroup } from "#lib/policy/kinds.ts";
import { plural } from "#lib/recorded-answers.ts";
import type { GroupVersionKind, GroupVersionResource, KubernetesObject } from "#lib/review.ts";
import builtIn from "./kinds.json" with { type: "json" };

/** A kind that an API server serves. */
export interface Kind {
  kind: GroupVersionKind;
  resource: GroupVersionResource;
  namespaced: boolean;
  subresources: readonly string[];
  /** Not served unless somebody turns it on. */
  off: boolean;
  /** Of a custom resource whose versions differ in nothing but their names. */
  sameInAll: boolean;
}

/** The kinds that Kubernetes 1.36 serves, and those of custom resources. */
export interface Kinds {
  of(apiVersion: string, kind: string): Kind | undefined;
  /** Other groups and versions under which the same objects are served. */
  equivalents(resource: GroupVersionResource): GroupVersionResource[];
  /** Of a group and version, as discovery lists them; undefined where nobody here knows of it. */
  discover(groupVersion: string): Served[] | undefined;
  /** An object in another version, where that changes nothing but its name. */
  convert(object: unknown, to: GroupVersionKind): unknown;
}

/** By apiVersion and kind, as `kindName` has them. */
export type KindsByName = ReadonlyMap<string, Kind>;

interface Row {
  resource: string;
  namespaced: boolean;
  subresources?: readonly string[];
  off?: boolean;
}

/** The kinds there are, with those that CustomResourceDefinitions among these objects define. */
export const kindsOf = (objects: Iterable<unknown>): Kinds => kindsFrom(kindsWith(objects));

/** These kinds and no others. */
export const kindsFrom = (byName: KindsByName): Kinds => {
  const byResource = Map.groupBy(byName.values(), ({ resource }) => `${resource.group}/${resource.resource}`);
  const byVersion = Map.groupBy(byName.values(), ({ kind }) => joinApiVersion(kind));
  const among = ({ group, resource }: GroupVersionResource) => {
    const names = events.includes(`${group}/${resource}`) ? events : [`${group}/${resource}`];
    return names.flatMap((name) => byResource.get(name) ?? []);
  };
  return {
    of: (apiVersion, kind) => byName.get(kindName(apiVersion, kind)),
    equivalents: (resource) =>
      among(resource)
        .filter(
          ({ off, resource: { group, version } }) => !off && (group !== resource.group || version !== resource.version),
        )
        .map((one) => one.resource),
    discover: (groupVersion) => byVersion.get(groupVersion)?.map(servedOf),
    convert: (object, to) => {
      const kind = isMap(object) && byName.get(kindName(String(object.apiVersion), String(object.kind)));
      if (!kind) return undefined;
      const apiVersion = joinApiVersion(to);
      if (object.apiVersion === apiVersion) return object;
      const isSame = kind.sameInAll && kind.kind.group === to.group && byName.has(kindName(apiVersion, to.kind));
      return isSame ? { ...object, apiVersion } : undefined;
    },
  };
};

/**
 * The kinds there are as far as objects tell, with those that only they themselves tell of: by the plural that Kubernetes
 * would form, and in namespaces where one of them is.
 */
export const kindsAmong = (objects: readonly KubernetesObject[]): KindsByName => {
  const known = new Map(kindsWith(objects));
  // One that has a namespace tells more than one that has none.
  const telling = objects.toSorted((one, other) => Number(isInside(other)) - Number(isInside(one)));
  for (const object of telling) {
    const { apiVersion = "", kind = "" } = object;
    const name = kindName(apiVersion, kind);
    if (known.has(name)) continue;
    const row = { resource: plural(kind), namespaced: isInside(object) };
    known.set(name, kindFrom(splitApiVersion(apiVersion), kind, row));
  }
  return known;
};

/** What names a kind among all. */
export const kindName = (apiVersion: string, kind: string) => `${apiVersion} ${kind}`;

/** As discovery lists it. */
export const servedOf = ({ kind: { kind }, resource: { resource }, namespaced }: Kind): Served => {
  return { resource, kind, namespaced };
};

const isInside = ({ metadata }: KubernetesObject) => Boolean(metadata?.namespace);

/** One store under two names, the only one that Kubernetes serves so. */
const events = ["/events", "events.k8s.io/events"];

/** `apps/v1` of group and version. */
export const kindFrom = (
  { group, version }: { group: string; version: string },
  kind: string,
  { resource, namespaced, subresources = [], off = false }: Row,
  sameInAll = false,
): Kind => ({
  kind: { group, version, kind },
  resource: { group, version, resource },
  ...{ namespaced, subresources, off, sameInAll },
});

/** Nobody defines what is there already. */
const kindsWith = (objects: Iterable<unknown>): KindsByName => {
  const known = new Map(standard.map(named));
  for (const [name, one] of [...objects].flatMap(definedBy).map(named)) {
    // Who has policies may have the definitions of their kinds elsewhere; those that are here say more.
    if (!known.has(name) || one.kind.group === policyGroup) known.set(name, one);
  }
  return known;
};

/** What the rules about policies are for, where somebody installed it. */
const policies: Record<string, Row> = {
  ClusterOverridePolicy: { resource: "clusteroverridepolicies", namespaced: false, off: true },
  ClusterValidatePolicy: { resource: "clustervalidatepolicies", namespaced: false, off: true },
  OverridePolicy: { resource: "overridepolicies", namespaced: true, off: true },
};

/** The kinds that nobody has to define. */
export const standard: readonly Kind[] = Object.entries<Record<string, Row>>({
  ...builtIn,
  [`${policyGroup}/v1alpha1`]: policies,
}).flatMap(([apiVersion, rows]) =>
  Object.entries(rows).map(([kind, row]) => kindFrom(splitApiVersion(apiVersion), kind, row)),
);

const named = (one: Kind): [string, Kind] => [kindName(joinApiVersion(one.kind), one.kind.kind), one];

/** What a CustomResourceDefinition defines, as far as it is one. */
const definedBy = (object: unknown): Kind[] => {
  const { apiVersion, kind: word, spec } = Object(object);
  if (word !== "CustomResourceDefinition" || !String(apiVersion).startsWith("apiextensions.k8s.io/")) return [];
  const { group, scope, names, versions, conversion } = Object(spec);
  const { kind, plural: resource } = Object(names);
  if (![group, kind, resource].every((text) => typeof text === "string") || !Array.isArray(versions)) return [];
  const strategy = Object(conversion).strategy ?? "None";
  return versions.flatMap((one): Kind[] => {
    const { name: version, served, subresources } = Object(one);
    if (typeof version !== "string" || served === false) return [];
    const below = ["status", "scale"].filter((name) => Object(subresources)[name] !== undefined);
    const row = { resource, namespaced: scope === "Namespaced", subresources: below };
    return [kindFrom({ group, version }, kind, row, strategy === "None")];
  });
};
