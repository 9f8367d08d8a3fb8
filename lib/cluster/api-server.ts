import type { Agent } from "node:https";
import { setTimeout as wait } from "node:timers/promises";
import { freezeDeep, parseJson } from "../json.ts";
import { type ClusterCredentialSource, createTokenSource } from "./credentials.ts";
import {
  awaitUntil,
  type HttpsAnswer,
  loadHttps,
  requireUnansweredError,
  type sendRequest,
  UnansweredError,
} from "./https-request.ts";

/** Where and how to reach a cluster's API server: URL, CA and credentials. */
export interface ApiServerConnection {
  /** The API server's address: https://…, without a path. */
  server: string;
  /** The CA certificates of the API server in PEM; several, if a new one is to be trusted besides the old one. */
  ca?: string;
  credentials: ClusterCredentialSource;
}

/**
 * Sends the API server a GET, or a POST with a body unless another method is given, and resolves to any answer. A
 * request that the server may have carried out is repeated only if that is safe.
 */
export type AskApiServer = (
  path: string,
  deadline: number,
  body?: object,
  isRepeatable?: boolean,
  method?: "PUT",
) => Promise<HttpsAnswer>;

/** The most milliseconds of one read. A read may outlive its review, because other reviews wait for it. */
export const longestApiServerReadMilliseconds = 10_000;

/** Returns the function that asks one API server. It repeats requests where that is safe and may help. */
export const createApiServerRequester = (
  { server, ca, credentials }: ApiServerConnection,
  send: typeof sendRequest,
): AskApiServer => {
  const { token, refused } = createTokenSource(credentials);
  let agent: Agent | undefined;
  const trust = { ...(ca && { ca }), ...("cert" in credentials && credentials) };
  const keepAlive = () => {
    agent ??= new (loadHttps().Agent)({ keepAlive: true, maxSockets: 8, ...trust });
    return { agent };
  };

  return async (path, deadline, body, isSafe = true, method) => {
    let isFresh = false;
    for (let attempt = 1; ; attempt++) {
      const latest = Date.now() + longestApiServerReadMilliseconds;
      const end = body ? deadline : latest;
      const bearer = await awaitUntil(end, token(latest));
      const headers = {
        accept: "application/json",
        "accept-encoding": "gzip",
        "user-agent": "postern",
        ...(bearer !== undefined && { authorization: `Bearer ${bearer}` }),
        ...(body && { "content-type": "application/json" }),
      };
      const answer = await send(
        `${server}${path}`,
        { method: method ?? (body ? "POST" : "GET"), headers, ...(isFresh ? { agent: false, ...trust } : keepAlive()) },
        body && JSON.stringify(body),
        end,
      ).catch(requireUnansweredError);
      const pause = attempt < 3 ? pauseAfter(answer, isSafe, attempt) : undefined;
      if (answer instanceof UnansweredError) {
        if (pause === undefined) throw answer;
        // The other kept connections may be dead, too.
        isFresh = true;
      } else {
        if (answer.status === 401 && bearer !== undefined) await refused(bearer);
        if (pause === undefined || Date.now() + pause >= deadline) return answer;
      }
      if (pause) await wait(pause);
    }
  };
};

/** Returns the milliseconds until a request to the API server is retried; undefined if a retry would not help. */
const pauseAfter = (answer: HttpsAnswer | UnansweredError, isSafe: boolean, attempt: number): number | undefined => {
  // A kept connection may have been closed while Lambda froze the process: the request never arrived.
  if (answer instanceof UnansweredError) return answer.unsent && isSafe ? 0 : undefined;
  if (answer.status === 401 && attempt === 1) return 0;
  // A server that answers 429 did not begin the request, so that any verb can be repeated.
  if (answer.status === 429) return (answer.retryAfter ?? 1) * 1000;
  return isSafe && [500, 502, 503, 504].includes(answer.status) ? (answer.retryAfter ?? 0.1) * 1000 : undefined;
};

/** The parsed JSON of an API server's answer, and the size of the answer in bytes. */
export interface ParsedApiServerAnswer {
  content: unknown;
  bytes: number;
}

/** Returns the JSON of an answer; undefined for a 404 of an object that could exist. Throws for any other failure. */
export const parseAnswerUnlessNotFound = ({ status, body }: HttpsAnswer): ParsedApiServerAnswer | undefined => {
  const content = parseJson(body);
  if (status < 300 && content !== undefined) return { content: freezeDeep(content), bytes: body.length };
  const { message, details } = Object(content);
  // A 404 with a name means that the object is missing. Without one, the resource isn't served: an error.
  if (status === 404 && Object(details).name !== undefined) return undefined;
  const reason = typeof message === "string" ? message : body.slice(0, 200);
  const remedy = status === 403 ? "; npx postern manifests prints the ClusterRole that allows it" : "";
  throw new Error(`the API server answers ${status}: ${reason}${remedy}`);
};
