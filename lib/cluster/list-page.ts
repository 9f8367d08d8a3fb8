import { Failure } from "../failure.ts";
import { isMap, parseJson, toList, toMap } from "../json.ts";
import type { ObjectPage, ResourceType } from "../needs.ts";
import { joinApiVersion, toApiPath } from "../objects/api-version.ts";
import { type AskApiServer, parseAnswerUnlessNotFound } from "./api-server.ts";
import { awaitUntil } from "./https-request.ts";
import { buildObjectPath, type CreateListPage, createFailure, parseServedResources } from "./live-capabilities.ts";
import { buildPageQuery, parsePage } from "./pages.ts";

/** The most characters of a page. A larger one could take more memory than a function has. */
const longestPage = 8 * 1024 * 1024;

/** Returns the capability to read lists of a cluster page by page. */
export const createListPage: CreateListPage = ({ cluster, deadline }, findServer) => {
  const askBefore = (ask: AskApiServer, path: string) => awaitUntil(deadline, ask(path, deadline));
  /** Reads an object of a kind; throws for all else, also for a 404, which a proxy may have sent. */
  const readKind = async (ask: AskApiServer, path: string, kind: string): Promise<Record<string, unknown>> => {
    const content = toMap(parseAnswerUnlessNotFound(await askBefore(ask, path))?.content);
    if (content.kind !== kind) throw new Error(`the answer at ${path} is not ${kind}`);
    return content;
  };
  /**
   * Returns a version that serves a kind: the preferred one of its group, if that does. Undefined says that the API server
   * has no such kind, and so no objects of it.
   */
  const findVersion = async (ask: AskApiServer, { group, resource }: ResourceType): Promise<string | undefined> => {
    if (group === "") return "v1";
    const { groups } = await readKind(ask, "/apis", "APIGroupList");
    const { preferredVersion, versions } = toMap(toList(groups).find((one) => toMap(one).name === group));
    for (const one of [preferredVersion, ...toList(versions)].filter(isMap)) {
      const version = String(one.version);
      const served = await readKind(ask, toApiPath(joinApiVersion({ group, version })), "APIResourceList");
      if (parseServedResources(served).some((found) => found.resource === resource)) return version;
    }
    return undefined;
  };
  return {
    listPage: async (kind, limit, next) => {
      const ask = findServer();
      if (!ask) throw new Failure(503, `could not list ${kind.resource}: cluster "${cluster}" has no connection here`);
      const read = async (): Promise<ObjectPage> => {
        const version = kind.version ?? (await findVersion(ask, kind));
        if (version === undefined) return { items: [], version, next: "" };
        const query = buildPageQuery(limit, next);
        const answer = await askBefore(ask, `${buildObjectPath({ ...kind, version })}?${query}`);
        if (answer.body.length > longestPage) throw new Error(`the answer has more than ${longestPage} characters`);
        // The answer to an expired token has a new token, which continues the list from its current state.
        const fresh = answer.status === 410 ? parsePage(parseJson(answer.body)).next : "";
        if (fresh !== "") return { items: [], version, next: fresh };
        const page = parsePage(parseAnswerUnlessNotFound(answer)?.content);
        if (page.kind === undefined || !Array.isArray(page.items)) throw new Error("the answer is not a list");
        return { items: page.items, version, next: page.next };
      };
      return read().catch(createFailure(`list ${kind.resource} of`, cluster));
    },
  };
};
