import type { Hook } from "#infra/apiserver/admission/hooks.ts";
import { matches } from "#lib/match.ts";
import { joinApiVersion } from "#lib/objects/api-version.ts";
import type { Operation, Request } from "#lib/review.ts";
import { type Kind, type Kinds, kindName, kindsFrom } from "../../apiserver/kinds/kinds.ts";
import { isWorkload } from "../evaluation/pod-templates.ts";
import { inApplyOrder } from "../evaluation/requests.ts";
import type { Discovered, Resource } from "./discovery.ts";
import { manifestOf } from "./subjects.ts";

/** What of a cluster is looked at. */
export interface Chosen {
  resources: Resource[];
  /** Of those that hooks are about, the ones that nobody can list. */
  unlisted: Resource[];
}

/** The kinds that a cluster serves. Of the groups among these, all versions are alike but for their names. */
export const kindsIn = ({ resources }: Discovered, alike: ReadonlySet<string>): Kinds =>
  kindsFrom(
    new Map(
      resources.map((one): [string, Kind] => [
        kindName(joinApiVersion(one.kind), one.kind.kind),
        { ...one, sameInAll: alike.has(`${one.resource.group}/${one.resource.resource}`) },
      ]),
    ),
  );

/**
 * What some hook is about, each in one version, in the order in which kubectl would apply it; with `alsoPods`, workloads
 * as well where a hook is about the Pods that they make.
 */
export const chosenOf = (
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
    resources: inApplyOrder(each.filter(isListed), (one) => manifestOf({ kind: one.kind.kind })),
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

/** As kubectl calls it. */
export const called = ({ resource: { group, resource } }: Pick<Kind, "resource">): string =>
  group === "" ? resource : `${resource}.${group}`;
