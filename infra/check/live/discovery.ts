import { UnansweredError } from "#lib/cluster/https-request.ts";
import { type JsonMap, toList, toMap } from "#lib/json.ts";
import { splitApiVersion, toApiPath } from "#lib/objects/api-version.ts";
import type { ResourceKind } from "../../apiserver/kinds/kinds.ts";
import { Complaint } from "../../cli/complaint.ts";
import { type ApiGet, type FailureFormatter, parseAnswerJson } from "./reader.ts";

export interface DiscoveredResource extends ResourceKind {
  verbs: readonly string[];
}

/** The kinds that a cluster serves: groups in the cluster's order, the preferred version of each group first. */
export interface DiscoveryResult {
  resources: DiscoveredResource[];
  unknown: { group: string; version: string; why: string }[];
}

/** The header Accept of a request for aggregated discovery, which older API servers answer with a plain list. */
const acceptedTypes = ["v2", "v2beta1"]
  .map((version) => `application/json;g=apidiscovery.k8s.io;v=${version};as=APIGroupDiscoveryList`)
  .concat("application/json")
  .join(",");

/** Reads which resources a cluster serves: by aggregated discovery, or by one request for each group version. */
export const discoverClusterResources = async (read: ApiGet, describe: FailureFormatter): Promise<DiscoveryResult> => {
  const all: DiscoveryResult = { resources: [], unknown: [] };
  for (const root of ["/api", "/apis"]) {
    const answer = await read(root, acceptedTypes);
    if (answer instanceof UnansweredError || answer.status !== 200)
      throw new Complaint(`the kinds of the cluster can't be read: ${describe(answer)}`, 3);
    const content = parseAnswerJson(answer);
    const kind = String(toMap(content).kind);
    // The kind is checked, because a proxy with a login page answers 200, too.
    if (!/^API(GroupDiscoveryList|Versions|GroupList)$/.test(kind))
      throw new Complaint(
        `the kinds of the cluster can't be read: ${root} has an answer that is not from an API server`,
        3,
      );
    if (kind === "APIGroupDiscoveryList") addAggregated(content, all);
    else for (const apiVersion of listVersions(content)) await addVersion(apiVersion, { read, describe }, all);
  }
  return all;
};

/** Adds the resources of an aggregated discovery document to `all`. */
const addAggregated = (content: unknown, all: DiscoveryResult): void => {
  for (const item of toList(toMap(content).items)) {
    const group = String(toMap(toMap(item).metadata).name ?? "");
    for (const element of toList(toMap(item).versions)) {
      const { freshness, resources } = toMap(element);
      const version = String(toMap(element).version);
      if (freshness === "Stale") all.unknown.push({ group, version, why: "its server doesn't answer the API server" });
      for (const found of toList(resources)) {
        const { resource, responseKind, scope, verbs, subresources } = toMap(found);
        const names = toList(subresources).map((element) => String(toMap(element).subresource));
        const { kind } = toMap(responseKind);
        addResource({ group, version }, { resource, kind, verbs, subresources: names, scope }, all);
      }
    }
  }
};

/** Returns the apiVersions that `/api` (the core group) or `/apis` (all groups) lists, preferred versions first. */
const listVersions = (content: unknown): string[] => {
  const { versions, groups } = toMap(content);
  return [
    ...toList(versions).map(String),
    ...toList(groups).flatMap((group) => {
      const { versions, preferredVersion } = toMap(group);
      const all = toList(versions).map((version) => String(toMap(version).groupVersion));
      const preferred = String(toMap(preferredVersion).groupVersion);
      return [...all.filter((version) => version === preferred), ...all.filter((version) => version !== preferred)];
    }),
  ].filter((apiVersion) => /^[a-z0-9.-]+(\/[a-z0-9]+)?$/.test(apiVersion));
};

/** Reads the resources of an API version such as apps/v1, and adds them to `all`. */
const addVersion = async (
  apiVersion: string,
  { read, describe }: { read: ApiGet; describe: FailureFormatter },
  all: DiscoveryResult,
): Promise<void> => {
  const answer = await read(toApiPath(apiVersion));
  if (answer instanceof UnansweredError || answer.status !== 200) {
    all.unknown.push({ ...splitApiVersion(apiVersion), why: describe(answer) });
    return;
  }
  const { resources } = toMap(parseAnswerJson(answer));
  if (!Array.isArray(resources)) {
    all.unknown.push({ ...splitApiVersion(apiVersion), why: "the API server did not list the resources" });
    return;
  }
  const rows = resources.map(toMap);
  for (const { name, kind, namespaced, verbs } of rows) {
    if (String(name).includes("/")) continue;
    // A subresource is listed beside its resource, for instance as "deployments/scale".
    const subresources = rows.flatMap((row) => {
      const [owner, subresource] = String(row.name).split("/");
      return owner === name && subresource !== undefined ? [subresource] : [];
    });
    const scope = namespaced === true ? "Namespaced" : "Cluster";
    addResource(splitApiVersion(apiVersion), { resource: name, kind, verbs, subresources, scope }, all);
  }
};

/** Adds a resource to `all`, unless its name can't be part of a URL. */
const addResource = (
  { group, version }: { group: string; version: string },
  { resource, kind, verbs, subresources, scope }: JsonMap & { subresources: string[] },
  all: DiscoveryResult,
): void => {
  if (typeof resource !== "string" || typeof kind !== "string") return;
  // The version, resource and group become parts of a URL's path, so other characters are refused.
  if (![version, resource].every((word) => /^[a-z0-9.-]+$/.test(word)) || !/^[a-z0-9.-]*$/.test(group)) return;
  all.resources.push({
    kind: { group, version, kind },
    resource: { group, version, resource },
    namespaced: scope === "Namespaced",
    subresources,
    isServedByDefault: true,
    sameFieldsInAllVersions: false,
    verbs: toList(verbs).map(String),
  });
};
