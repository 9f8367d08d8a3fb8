import { joinApiVersion, toApiPath } from "#lib/objects/api-version.ts";
import { Complaint } from "../../cli/complaint.ts";
import { type ClusterCredentialOptions, resolveClusterConnection } from "../../clusters/access.ts";
import { describeFailure } from "../../clusters/api.ts";
import type { ClusterConfig } from "../../config/config.ts";
import { isNamespaceResource } from "../evaluation/requests.ts";
import { type DiscoveredResource, discoverClusterResources } from "./discovery.ts";
import { readListPages } from "./pages.ts";
import { type ApiGet, type FailureFormatter, openApiReader } from "./reader.ts";

/** Which cluster to read, and how. */
export interface ClusterReadOptions {
  cluster: [name: string, ClusterConfig];
  credentials: ClusterCredentialOptions;
  /** The namespaces whose objects are read; all namespaces if the list is empty. */
  namespaces: readonly string[];
  objectsPerPage: number;
}

/** A function that lists the objects of a resource page by page; in all namespaces if `namespaces` is empty. */
type ListPages = (resource: DiscoveredResource, namespaces: readonly string[]) => ReturnType<typeof readListPages>;

/** Connects to a cluster and reads which kinds it serves. Throws if that fails, or a chosen namespace isn't there. */
export const openCluster = async (
  { cluster: [name, config], credentials, namespaces, objectsPerPage }: ClusterReadOptions,
  signal: AbortSignal,
) => {
  const connection = await resolveClusterConnection(name, config.connect, {
    ...credentials,
    neededRight: "list everything",
  });
  const read = openApiReader(connection, signal);
  const describeAnswer: FailureFormatter = (answer) => describeFailure(answer, connection);
  const found = await discoverClusterResources(read, describeAnswer);
  for (const namespace of namespaces) await checkNamespace(namespace, read, describeAnswer);
  const list: ListPages = async function* (resource, within) {
    const apiVersion = joinApiVersion(resource.kind);
    const { kind } = resource.kind;
    // The items of a list lack their apiVersion and kind. An element without items says why the list can't be read.
    for (const { path, selection } of listPaths(resource, within))
      for await (const page of readListPages(read, { path, selection, objectsPerPage }, describeAnswer))
        yield "items" in page ? { ...page, items: page.items.map((item) => ({ ...item, apiVersion, kind })) } : page;
  };
  return { connection, read, describeAnswer, found, list };
};

const checkNamespace = async (name: string, read: ApiGet, describeAnswer: FailureFormatter): Promise<void> => {
  const answer = await read(`/api/v1/namespaces/${encodeURIComponent(name)}`);
  // A 403 is no fault: a user without the right to read the Namespace may have the right to read the objects in it.
  if ("status" in answer && [200, 403].includes(answer.status)) return;
  const isNameWrong = "status" in answer && answer.status < 500;
  throw new Complaint(`--namespace ${name}: ${describeAnswer(answer)}`, isNameWrong ? 2 : 3);
};

/** Returns the requests that list a resource; namespaces themselves are selected by name. */
export const listPaths = ({ kind, resource, namespaced }: DiscoveredResource, namespaces: readonly string[]) => {
  const root = toApiPath(joinApiVersion(kind));
  const everywhere = `${root}/${resource.resource}`;
  if (namespaces.length === 0) return [{ path: everywhere, selection: {} }];
  return namespaces.flatMap((name) => {
    if (isNamespaceResource(resource))
      return [{ path: everywhere, selection: { fieldSelector: `metadata.name=${name}` } }];
    const path = `${root}/namespaces/${encodeURIComponent(name)}/${resource.resource}`;
    return namespaced ? [{ path, selection: {} }] : [];
  });
};
