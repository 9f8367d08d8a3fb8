import type { Hook } from "#infra/apiserver/admission/hooks.ts";
import { own } from "#lib/json.ts";
import { joinApiVersion } from "#lib/objects/api-version.ts";
import { matches } from "#lib/request-match.ts";
import type { Operation, Request } from "#lib/review.ts";
import { type Kind, type Kinds, kindName, kindsFrom } from "../../apiserver/kinds/kinds.ts";
import { isWorkload } from "../evaluation/pod-templates.ts";
import { sortForApply } from "../evaluation/requests.ts";
import type { Discovered, Resource } from "./discovery.ts";
import { pagesOf } from "./pages.ts";
import type { Read } from "./reader.ts";

/** What of a cluster is looked at. */
export interface Chosen {
  resources: Resource[];
  /** Of those that hooks are about, the ones that nobody can list. */
  unlisted: Resource[];
}

/** Returns the kinds that a cluster serves, with the conversions that webhooks may ask for. */
export const readKinds = async (found: Discovered, hooks: readonly Hook[], read: Read): Promise<Kinds> => {
  const uniform = await findUniform(found, hooks, read);
  return kindsFrom(
    new Map(
      found.resources.map((one): [string, Kind] => [
        kindName(joinApiVersion(one.kind), one.kind.kind),
        { ...one, sameInAll: uniform.has(`${one.resource.group}/${one.resource.resource}`) },
      ]),
    ),
  );
};

/** CustomResourceDefinitions can be large. */
const definitionsPerPage = 20;
const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/**
 * The custom resources, as group and resource, whose versions differ in nothing but their names. Only who converts others
 * knows how, and hooks may ask for another version than the one that is read; where that is nobody, it isn't looked up.
 */
const findUniform = async (
  { resources }: Discovered,
  hooks: readonly Hook[],
  read: Read,
): Promise<ReadonlySet<string>> => {
  const uniform = new Set<string>();
  const versions = Map.groupBy(resources, ({ resource: { group, resource } }) => `${group}/${resource}`);
  const several = new Set([...versions].filter(([, all]) => all.length > 1).map(([name]) => name));
  if (several.size === 0 || !hooks.some(({ matchPolicy }) => matchPolicy === "Equivalent")) return uniform;
  // Without an answer, conversion stays unknown, and what rests on it can't be said.
  for await (const found of pagesOf(read, () => "", definitions, {}, definitionsPerPage)) {
    if ("broken" in found) break;
    for (const definition of found.items) {
      const spec = own(definition, "spec");
      const name = `${own(spec, "group")}/${own(own(spec, "names"), "plural")}`;
      if (several.has(name) && (own(own(spec, "conversion"), "strategy") ?? "None") === "None") uniform.add(name);
    }
  }
  return uniform;
};

/**
 * What some hook is about, each in one version, in the order in which kubectl would apply it; with `alsoPods`, workloads
 * as well where a hook is about the Pods that they make.
 */
export const selectResources = (
  { resources }: Discovered,
  kinds: Kinds,
  hooks: readonly Hook[],
  operation: Operation,
  alsoPods: boolean,
): Chosen => {
  const isMade =
    alsoPods &&
    operation !== "DELETE" &&
    hooks.some(({ rules }) => rules.some((rule) => matches(rule, madePod as Request)));
  const isAsked = ({ kind, resource, namespaced, verbs }: Resource): boolean => {
    // What nobody can make or change, no hook hears of; nor of what says which hooks there are.
    if (!verbs.includes(operation.toLowerCase()) || resource.group === "admissionregistration.k8s.io") return false;
    const requests = [resource, ...kinds.equivalents(resource)].map(
      // Rules look at nothing else of a request.
      (one) => ({ resource: one, operation, namespace: namespaced ? "any" : "" }) as Request,
    );
    if (isMade && isWorkload({ apiVersion: joinApiVersion(kind), kind: kind.kind })) return true;
    const [own, ...others] = requests;
    return hooks.some(({ rules, matchPolicy }) =>
      rules.some(
        (rule) =>
          (own && matches(rule, own)) || (matchPolicy === "Equivalent" && others.some((one) => matches(rule, one))),
      ),
    );
  };
  const stores = Map.groupBy(resources.filter(isAsked), ({ resource }) => storeOf(resource));
  const found = [...stores.values()].map((versions) => versions.find(isListed) ?? versions[0]);
  const each = found.filter((one) => one !== undefined);
  return {
    resources: sortForApply(each.filter(isListed), ({ kind }) => kind.kind),
    unlisted: each.filter((one) => !isListed(one)),
  };
};

const madePod = { resource: { group: "", version: "v1", resource: "pods" }, operation: "CREATE", namespace: "any" };

/** Whether some hook may be about a kind of a group and version. */
export const isAbout = (hooks: readonly Hook[], { group, version }: { group: string; version: string }): boolean =>
  hooks.some(({ rules }) =>
    rules.some(
      ({ apiGroups, apiVersions }) =>
        ["*", group].some((one) => apiGroups.includes(one)) && ["*", version].some((one) => apiVersions.includes(one)),
    ),
  );

const isListed = ({ verbs }: Resource) => verbs.includes("list");

/** Events are in one store under two names. */
const storeOf = ({ group, resource }: Kind["resource"]) =>
  group === "events.k8s.io" && resource === "events" ? "/events" : `${group}/${resource}`;

/** Returns the name of a resource as kubectl prints it. */
export const toResourceName = ({ resource: { group, resource } }: Pick<Kind, "resource">): string =>
  group === "" ? resource : `${resource}.${group}`;
