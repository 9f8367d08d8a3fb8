import { UnansweredError } from "#lib/cluster/https-request.ts";
import { isMap, toMap } from "#lib/json.ts";
import type { KubernetesObject } from "#lib/review.ts";
import type { ExistingObjects } from "../evaluation/existing-objects.ts";
import { isNamespaceResource } from "../evaluation/requests.ts";
import { type ApiGet, type FailureFormatter, parseAnswerJson } from "./reader.ts";

/** The objects of kind Namespace that a live check has read; it holds no other objects. */
export interface CachedNamespaces extends Pick<ExistingObjects, "find" | "put" | "remove"> {
  /** Reads a namespace unless it is cached. Returns why it can't be read, but only for the first such namespace. */
  fetch(name: string): Promise<string | undefined>;
}

/** The most Namespaces that are kept. The API server lists objects ordered by namespace, so few are needed at once. */
const maxNamespaces = 500;

/**
 * Opens a cache of Namespaces, which keeps only what webhooks select by. `put` ignores objects of other kinds: rules
 * read these from the cluster.
 */
export const openNamespaceCache = (read: ApiGet, describe: FailureFormatter): CachedNamespaces => {
  const cached = new Map<string, KubernetesObject>();
  const keep = (name: string, object: KubernetesObject) => {
    cached.set(name, object);
    const [oldest] = cached.keys();
    if (cached.size > maxNamespaces && oldest !== undefined) cached.delete(oldest);
  };
  const fetchNamespace = async (name: string): Promise<string | undefined> => {
    const answer = await read(`/api/v1/namespaces/${encodeURIComponent(name)}`);
    if (answer instanceof UnansweredError || answer.status !== 200) return describe(answer);
    const { kind, metadata, status } = toMap(parseAnswerJson(answer));
    if (kind !== "Namespace") return "the API server didn't answer with a Namespace";
    const { labels, annotations } = toMap(metadata);
    const keptMetadata = { name, ...(isMap(labels) && { labels }), ...(isMap(annotations) && { annotations }) };
    // The values of labels and annotations aren't checked: an API server returns only strings.
    keep(name, { apiVersion: "v1", kind: "Namespace", metadata: keptMetadata, status } as KubernetesObject);
    return undefined;
  };
  let isFailureReported = false;
  const pendingReads = new Map<string, Promise<string | undefined>>();
  return {
    fetch: async (name) => {
      if (cached.has(name)) return undefined;
      const pending = pendingReads.get(name) ?? fetchNamespace(name).finally(() => pendingReads.delete(name));
      pendingReads.set(name, pending);
      const failure = await pending;
      if (failure === undefined || isFailureReported) return undefined;
      isFailureReported = true;
      return failure;
    },
    find: (resource, name) => (isNamespaceResource(resource) ? cached.get(name) : undefined),
    put: (resource, object) => {
      const name = object.metadata?.name;
      // If the Namespace wasn't read from the cluster, for instance after a failure, the evaluated object is cached.
      if (isNamespaceResource(resource) && name && !cached.has(name)) keep(name, object);
    },
    // A check deletes nothing: it only evaluates the request that would delete a Namespace.
    remove: () => {},
  };
};
