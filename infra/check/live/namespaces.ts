import { Unanswered } from "#lib/cluster/https-request.ts";
import { isMap } from "#lib/json.ts";
import type { KubernetesObject } from "#lib/review.ts";
import type { Existing } from "../evaluation/existing-objects.ts";
import { contentOf, type Read, type Why } from "./reader.ts";

/** A cluster's namespaces, as those are asked for that objects are in. */
export interface Namespaces extends Pick<Existing, "find" | "put" | "remove"> {
  /** Has it at hand; answers why it can't be read, of the first of which that is so. */
  fetch(name: string): Promise<string | undefined>;
}

/** So many are kept: objects come ordered by namespace. */
const most = 500;

/** What is known of each is what hooks choose by. What is evaluated doesn't come to exist by it. */
export const openNamespaces = (read: Read, why: Why): Namespaces => {
  const known = new Map<string, KubernetesObject>();
  const keep = (name: string, object: KubernetesObject) => {
    known.set(name, object);
    const [oldest] = known.keys();
    if (known.size > most && oldest !== undefined) known.delete(oldest);
  };
  const ask = async (name: string): Promise<string | undefined> => {
    const answer = await read(`/api/v1/namespaces/${encodeURIComponent(name)}`);
    if (answer instanceof Unanswered || answer.status !== 200) return why(answer);
    const { kind, metadata, status } = Object(contentOf(answer));
    if (kind !== "Namespace") return "the API server answers no Namespace";
    const { labels, annotations } = Object(metadata);
    const said = { name, ...(isMap(labels) && { labels }), ...(isMap(annotations) && { annotations }) };
    // The API server's own answer has texts there.
    keep(name, { apiVersion: "v1", kind: "Namespace", metadata: said, status } as KubernetesObject);
    return undefined;
  };
  let isTold = false;
  const asking = new Map<string, Promise<string | undefined>>();
  return {
    fetch: async (name) => {
      if (known.has(name)) return undefined;
      const asked = asking.get(name) ?? ask(name).finally(() => asking.delete(name));
      asking.set(name, asked);
      const failure = await asked;
      if (failure === undefined || isTold) return undefined;
      isTold = true;
      return failure;
    },
    find: ({ group, resource }, name) => (group === "" && resource === "namespaces" ? known.get(name) : undefined),
    put: ({ group, resource }, object) => {
      const name = object.metadata?.name;
      // Of one that can't be read, what is assumed stands in its place.
      if (group === "" && resource === "namespaces" && name && !known.has(name)) keep(name, object);
    },
    remove: () => {},
  };
};
