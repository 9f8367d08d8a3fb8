import type { Resource, Served, World } from "#lib/needs.ts";
import { plural, type Recorded, recorded } from "#lib/recorded-answers.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { kindName, kindsAmong, servedOf } from "./kinds.ts";

/**
 * Which kinds there are, as far as objects tell: Kubernetes' own, those that a CustomResourceDefinition among them defines,
 * and those that they have themselves, which are in namespaces where one of them is.
 */
export const servedAmong = (objects: readonly KubernetesObject[]): Record<string, Served[]> => {
  const present = new Set(objects.map(({ apiVersion = "", kind = "" }) => kindName(apiVersion, kind)));
  const served = [...kindsAmong(objects)].filter(([name, { off }]) => !off || present.has(name));
  const byVersion = Map.groupBy(served, ([name]) => name.slice(0, name.indexOf(" ")));
  return Object.fromEntries([...byVersion].map(([version, all]) => [version, all.map(([, kind]) => servedOf(kind))]));
};

/** What a group and version's kind is served as, among these. */
export const servedAs = (served: Record<string, Served[]>, { apiVersion = "", kind }: KubernetesObject) =>
  Object.hasOwn(served, apiVersion) ? served[apiVersion]?.find((one) => one.kind === kind) : undefined;

/** A world that is written down, with the kinds that follow from its objects beside those it names itself. */
export const describedWorld = (given: Recorded): World => {
  const discovery = { ...servedAmong(given.objects ?? []), ...given.discovery };
  const { get, list, create, ...world } = recorded({ ...given, discovery });
  // Objects are kept by the plurals that Kubernetes forms; a definition may have another.
  const usual = new Map(
    Object.entries(discovery).flatMap(([apiVersion, kinds]) =>
      kinds.map(({ resource, kind }) => [`${groupOf(apiVersion)}/${resource}`, plural(kind)] as const),
    ),
  );
  const kept = ({ group, resource, ...rest }: Resource): Resource => {
    return { ...rest, group, resource: usual.get(`${group}/${resource}`) ?? resource };
  };
  return {
    ...world,
    get: (kind, ...rest) => get(kept(kind), ...rest),
    list: (kind, ...rest) => list(kept(kind), ...rest),
    create: (kind, ...rest) => create(kept(kind), ...rest),
  };
};

const groupOf = (apiVersion: string) => (apiVersion.includes("/") ? apiVersion.split("/", 1)[0] : "");
