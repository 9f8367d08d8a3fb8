import { Failure } from "../failure.ts";
import { parseJson, toList, toMap } from "../json.ts";
import type { ObjectPage, ResourceType } from "../needs.ts";
import { joinApiVersion, toApiPath } from "../objects/api-version.ts";
import { type AskApiServer, parseAnswerUnlessNotFound } from "./api-server.ts";
import { awaitUntil } from "./https-request.ts";
import { buildObjectPath, type CreateListPage, createFailure, parseServedResources } from "./live-capabilities.ts";
import { buildPageQuery, parsePage } from "./pages.ts";

/** Returns the capability to read lists of a cluster page by page. */
export const createListPage: CreateListPage = ({ cluster, deadline }, findServer) => {
  const askBefore = (ask: AskApiServer, path: string) => awaitUntil(deadline, ask(path, deadline));
  /** Returns a version that serves a kind: the preferred one of its group, if that does. */
  const findVersion = async (ask: AskApiServer, { group, resource }: ResourceType): Promise<string | undefined> => {
    if (group === "") return "v1";
    const answer = await askBefore(ask, `/apis/${encodeURIComponent(group)}`);
    if (answer.status === 404) return undefined;
    const { preferredVersion, versions } = toMap(parseAnswerUnlessNotFound(answer)?.content);
    for (const one of [preferredVersion, ...toList(versions)]) {
      const version = String(toMap(one).version);
      const served = await askBefore(ask, toApiPath(joinApiVersion({ group, version })));
      if (served.status === 404) continue;
      const listed = parseServedResources(parseAnswerUnlessNotFound(served)?.content);
      if (listed.some((found) => found.resource === resource)) return version;
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
        // A token that is too old comes with another one, with which the list goes on as it is by now.
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
