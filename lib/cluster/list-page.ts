import { Failure } from "../failure.ts";
import { isMap, parseJson, toList, toMap } from "../json.ts";
import type { ObjectPage, ResourceType } from "../needs.ts";
import { joinApiVersion, toApiPath } from "../objects/api-version.ts";
import { type AskApiServer, parseAnswerUnlessNotFound } from "./api-server.ts";
import { awaitUntil } from "./https-request.ts";
import { buildObjectPath, type CreateListPage, createFailure, parseServedResources } from "./live-capabilities.ts";
import { buildPageQuery, parsePage } from "./pages.ts";

/** The most characters of a page. A larger page could need more memory than a function has. */
const maxPageLength = 8 * 1024 * 1024;

/** Returns the capability to read lists of a cluster page by page. */
export const createListPage: CreateListPage = ({ cluster, deadline }, findServer) => {
  const askUntilDeadline = (ask: AskApiServer, path: string) => awaitUntil(deadline, ask(path, deadline));
  /** Reads an object of a kind. Throws for any other answer, even for a 404, because a proxy may have sent it. */
  const readKind = async (ask: AskApiServer, path: string, kind: string): Promise<Record<string, unknown>> => {
    const content = toMap(parseAnswerUnlessNotFound(await askUntilDeadline(ask, path))?.content);
    if (content.kind !== kind) throw new Error(`the answer at ${path} is not ${kind}`);
    return content;
  };
  /**
   * Returns a version of the group in which the API server serves the kind. The preferred version is tried first.
   * Returns undefined if the kind isn't served, so that no objects of it exist.
   */
  const findVersion = async (ask: AskApiServer, { group, resource }: ResourceType): Promise<string | undefined> => {
    if (group === "") return "v1";
    const { groups } = await readKind(ask, "/apis", "APIGroupList");
    const foundGroup = toMap(toList(groups).find((item) => toMap(item).name === group));
    for (const item of [foundGroup.preferredVersion, ...toList(foundGroup.versions)].filter(isMap)) {
      const version = String(item.version);
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
        const answer = await askUntilDeadline(ask, `${buildObjectPath({ ...kind, version })}?${query}`);
        if (answer.body.length > maxPageLength) throw new Error(`the answer has more than ${maxPageLength} characters`);
        // The answer 410 to an expired token contains a new token, with which the list continues in its current state.
        const newToken = answer.status === 410 ? parsePage(parseJson(answer.body)).next : "";
        if (newToken !== "") return { items: [], version, next: newToken };
        const page = parsePage(parseAnswerUnlessNotFound(answer)?.content);
        if (page.kind === undefined || !Array.isArray(page.items)) throw new Error("the answer is not a list");
        return { items: page.items, version, next: page.next };
      };
      return read().catch(createFailure(`list ${kind.resource} of`, cluster));
    },
  };
};
