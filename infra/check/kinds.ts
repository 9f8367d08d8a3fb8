import type { Served } from "#lib/needs.ts";
import { isMap } from "#lib/policy/tree.ts";
import type { GroupVersionKind, GroupVersionResource } from "#lib/review.ts";
import builtIn from "./kinds.json" with { type: "json" };
import { own } from "./values.ts";

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

interface Row {
  resource: string;
  namespaced: boolean;
  subresources?: readonly string[];
  off?: boolean;
}

/** `apps/v1` as group and version; what has no group is in the core's. */
export const groupVersionOf = (apiVersion: string): { group: string; version: string } => {
  const [version = "", group = ""] = apiVersion.split("/").reverse();
  return { group, version };
};

/** The kinds there are, with those that these CustomResourceDefinitions define. */
export const kindsOf = (definitions: Iterable<unknown>): Kinds => {
  // Nobody defines what Kubernetes has already.
  const all = [...[...definitions].flatMap(definedBy), ...standard];
  const byName = new Map(all.map((one) => [nameOf(apiVersionOf(one.kind), one.kind.kind), one]));
  const byResource = Map.groupBy(byName.values(), ({ resource }) => `${resource.group}/${resource.resource}`);
  const byVersion = Map.groupBy(byName.values(), ({ kind }) => apiVersionOf(kind));
  const among = ({ group, resource }: GroupVersionResource) => {
    const names = events.includes(`${group}/${resource}`) ? events : [`${group}/${resource}`];
    return names.flatMap((name) => byResource.get(name) ?? []);
  };
  return {
    of: (apiVersion, kind) => byName.get(nameOf(apiVersion, kind)),
    equivalents: (resource) =>
      among(resource)
        .filter(
          ({ off, resource: { group, version } }) => !off && (group !== resource.group || version !== resource.version),
        )
        .map((one) => one.resource),
    discover: (groupVersion) =>
      byVersion
        .get(groupVersion)
        ?.map(({ kind, resource, namespaced }) => ({ resource: resource.resource, kind: kind.kind, namespaced })),
    convert: (object, to) => {
      const kind = isMap(object) && byName.get(nameOf(String(object.apiVersion), String(object.kind)));
      if (!kind) return undefined;
      const apiVersion = apiVersionOf(to);
      if (object.apiVersion === apiVersion) return object;
      const isSame = kind.sameInAll && kind.kind.group === to.group && byName.has(nameOf(apiVersion, to.kind));
      return isSame ? { ...object, apiVersion } : undefined;
    },
  };
};

/** One store under two names, the only one that Kubernetes serves so. */
const events = ["/events", "events.k8s.io/events"];

const nameOf = (apiVersion: string, kind: string) => `${apiVersion} ${kind}`;
const apiVersionOf = ({ group, version }: { group: string; version: string }) =>
  group === "" ? version : `${group}/${version}`;

const standard: Kind[] = Object.entries(builtIn).flatMap(([apiVersion, rows]) =>
  Object.entries<Row>(rows).map(([kind, { resource, namespaced, subresources = [], off = false }]) => {
    const { group, version } = groupVersionOf(apiVersion);
    return {
      kind: { group, version, kind },
      resource: { group, version, resource },
      namespaced,
      subresources,
      off,
      sameInAll: false,
    };
  }),
);

/** What a CustomResourceDefinition defines, as far as it is one. */
const definedBy = (definition: unknown): Kind[] => {
  const spec = own(definition, "spec");
  const names = own(spec, "names");
  const [group, kind, resource] = [own(spec, "group"), own(names, "kind"), own(names, "plural")];
  const versions = own(spec, "versions");
  if (!Array.isArray(versions) || [group, kind, resource].some((one) => typeof one !== "string")) return [];
  const texts = { group: String(group), kind: String(kind), resource: String(resource) };
  const strategy = own(own(spec, "conversion"), "strategy") ?? "None";
  return versions.flatMap((one): Kind[] => {
    const version = own(one, "name");
    if (typeof version !== "string" || own(one, "served") === false) return [];
    const subresources = own(one, "subresources");
    return [
      {
        kind: { group: texts.group, version, kind: texts.kind },
        resource: { group: texts.group, version, resource: texts.resource },
        namespaced: own(spec, "scope") === "Namespaced",
        subresources: ["status", "scale"].filter((name) => own(subresources, name) !== undefined),
        off: false,
        sameInAll: strategy === "None",
      },
    ];
  });
};
