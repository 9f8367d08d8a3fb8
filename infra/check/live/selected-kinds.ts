import type { DefaultedWebhookEntry } from "#infra/apiserver/admission/hooks.ts";
import { getOwn } from "#lib/json.ts";
import { joinApiVersion } from "#lib/objects/api-version.ts";
import { matchesRequest } from "#lib/request-match.ts";
import type { AdmissionRequest, Operation } from "#lib/review.ts";
import { createKindIndex, type KindIndex, type ResourceKind, toKindKey } from "../../apiserver/kinds/kinds.ts";
import { isWorkload } from "../evaluation/pod-templates.ts";
import { sortForApply } from "../evaluation/requests.ts";
import type { DiscoveredResource, DiscoveryResult } from "./discovery.ts";
import { readListPages } from "./pages.ts";
import type { ApiGet } from "./reader.ts";

/** Returns a cluster's kinds. If `hooks` need it, marks custom kinds whose versions have the same fields. */
export const readClusterKindIndex = async (
  found: DiscoveryResult,
  hooks: readonly DefaultedWebhookEntry[],
  read: ApiGet,
): Promise<KindIndex> => {
  const uniform = await findUniformResources(found, hooks, read);
  return createKindIndex(
    new Map(
      found.resources.map((resource): [string, ResourceKind] => [
        toKindKey(joinApiVersion(resource.kind), resource.kind.kind),
        {
          ...resource,
          sameFieldsInAllVersions: uniform.has(`${resource.resource.group}/${resource.resource.resource}`),
        },
      ]),
    ),
  );
};

/** The number of CustomResourceDefinitions in one page: few, because a definition can be large. */
const definitionsPerPage = 20;
const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/**
 * Returns the custom resources, as group and resource, whose versions differ only in name. Nothing is read unless a
 * hook may ask for another version than the one listed.
 */
const findUniformResources = async (
  { resources }: DiscoveryResult,
  hooks: readonly DefaultedWebhookEntry[],
  read: ApiGet,
): Promise<ReadonlySet<string>> => {
  const uniform = new Set<string>();
  const versions = Map.groupBy(resources, ({ resource: { group, resource } }) => `${group}/${resource}`);
  const several = new Set([...versions].filter(([, all]) => all.length > 1).map(([name]) => name));
  if (several.size === 0 || !hooks.some(({ matchPolicy }) => matchPolicy === "Equivalent")) return uniform;
  // If the CustomResourceDefinitions can't be read, it is unknown how versions are converted: objects that hooks get in
  // another version are then undecided.
  const request = { path: definitions, objectsPerPage: definitionsPerPage };
  for await (const found of readListPages(read, request, () => "")) {
    if ("broken" in found) break;
    for (const definition of found.items) {
      const spec = getOwn(definition, "spec");
      const name = `${getOwn(spec, "group")}/${getOwn(getOwn(spec, "names"), "plural")}`;
      if (several.has(name) && (getOwn(getOwn(spec, "conversion"), "strategy") ?? "None") === "None") uniform.add(name);
    }
  }
  return uniform;
};

/**
 * Returns the resources that some hook matches, each in one version, in the order in which kubectl would apply them;
 * with `alsoPods`, also workloads if a hook matches the Pods that they make. `notListable` are matched resources whose
 * objects the API server can't list.
 */
export const selectMatchedResources = (
  { resources }: DiscoveryResult,
  kinds: KindIndex,
  hooks: readonly DefaultedWebhookEntry[],
  { operation, alsoPods = false }: { operation: Operation; alsoPods?: boolean },
) => {
  const matchesPods =
    alsoPods &&
    operation !== "DELETE" &&
    hooks.some(({ rules }) => rules.some((rule) => matchesRequest(rule, podRequest as AdmissionRequest)));
  const isMatched = ({ kind, resource, namespaced, verbs }: DiscoveredResource): boolean => {
    // Hooks aren't called for operations that the API server doesn't serve, nor for webhook configurations.
    if (!verbs.includes(operation.toLowerCase()) || resource.group === "admissionregistration.k8s.io") return false;
    const requests = [resource, ...kinds.equivalents(resource)].map(
      // The cast is safe: `matchesRequest` reads only these fields of a request.
      (type) => ({ resource: type, operation, namespace: namespaced ? "any" : "" }) as AdmissionRequest,
    );
    if (matchesPods && isWorkload({ apiVersion: joinApiVersion(kind), kind: kind.kind })) return true;
    return hooks.some(({ rules, matchPolicy }) => {
      const compared = matchPolicy === "Equivalent" ? requests : requests.slice(0, 1);
      return rules.some((rule) => compared.some((request) => matchesRequest(rule, request)));
    });
  };
  // All versions of a resource, and Events of both groups, are the same stored objects, which are read in one version.
  const byStoredName = Map.groupBy(resources.filter(isMatched), ({ resource }) => getStoredResourceName(resource));
  const inOneVersion = [...byStoredName.values()].flatMap((versions) => versions.find(isListable) ?? versions[0] ?? []);
  return {
    resources: sortForApply(inOneVersion.filter(isListable), ({ kind }) => kind.kind),
    notListable: inOneVersion.filter((resource) => !isListable(resource)),
  };
};

const podRequest = { resource: { group: "", version: "v1", resource: "pods" }, operation: "CREATE", namespace: "any" };

/** Reports whether any hook has a rule for resources of a group and version. */
export const matchesGroupVersion = (
  hooks: readonly DefaultedWebhookEntry[],
  { group, version }: { group: string; version: string },
): boolean =>
  hooks.some(({ rules }) =>
    rules.some(
      ({ apiGroups, apiVersions }) =>
        ["*", group].some((name) => apiGroups.includes(name)) &&
        ["*", version].some((name) => apiVersions.includes(name)),
    ),
  );

const isListable = ({ verbs }: DiscoveredResource) => verbs.includes("list");

/** An Event is one stored object, which the API server serves in the core group and in events.k8s.io. */
const getStoredResourceName = ({ group, resource }: ResourceKind["resource"]) =>
  group === "events.k8s.io" && resource === "events" ? "/events" : `${group}/${resource}`;

/** Returns the name of a resource as kubectl prints it. */
export const toResourceName = ({ resource: { group, resource } }: Pick<ResourceKind, "resource">): string =>
  group === "" ? resource : `${resource}.${group}`;
