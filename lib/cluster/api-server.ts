import type { Agent } from "node:https";
import { setTimeout as wait } from "node:timers/promises";
import { freezeDeep, parseJson, toMap } from "../json.ts";
import { type ClusterCredentialSource, createCredentialSource } from "./credentials.ts";
import {
  awaitUntil,
  type HttpsAnswer,
  loadHttps,
  requireUnansweredError,
  sendRequest,
  UnansweredError,
} from "./https-request.ts";

/** Where and how to reach a cluster's API server: URL, CA and credentials. */
export interface ApiServerConnection {
  /** The API server's address: https://…, without a slash at its end. */
  server: string;
  /** The CA certificates to trust, in PEM. While a CA is replaced, both the old and the new one. */
  ca?: string;
  /** The name that the API server's certificate must have, if it isn't the address's host. */
  serverName?: string;
  /** Headers that are sent with each request. They may be secret. */
  headers?: Record<string, string | string[]>;
  credentials: ClusterCredentialSource;
}

/** How a request is sent to an API server, and when it is repeated. */
export interface ApiServerRequest {
  /** By default GET, or POST with a body. */
  method?: "POST" | "PUT" | "PATCH" | "DELETE";
  body?: object;
  accept?: string;
  contentType?: string;
  /**
   * When to repeat the request. `failed` (the default): after a temporary failure, though the server may have carried
   * it out. `unsent`: only if it surely didn't arrive. `never`: not even then.
   */
  repeat?: "failed" | "unsent" | "never";
}

/** Sends a request to the API server. Repeats it if that is safe and may help. Resolves to an answer of any status. */
export type AskApiServer = (path: string, deadline: number, request?: ApiServerRequest) => Promise<HttpsAnswer>;

/** How often, how long and how fast a requester tries. */
export interface ApiServerRequesterOptions {
  send?: typeof sendRequest;
  /** Returns how often a request is tried at most. It is called after each try, so the number may change. */
  countTries?: () => number;
  /** The time limit of one try in milliseconds. */
  tryMilliseconds?: number;
  /** Milliseconds before the second try. The pause doubles before each further try. */
  pause?: number;
  /** If it is aborted, all requests end. */
  signal?: AbortSignal;
}

/** The time limit of one read in milliseconds. A read may take longer than its review, as others wait for it. */
export const longestApiServerReadMilliseconds = 10_000;

/** Returns the function that sends requests to one API server. A request's `repeat` says when to send it again. */
export const createApiServerRequester = (
  { server, ca, serverName, headers: connectionHeaders, credentials }: ApiServerConnection,
  {
    send = sendRequest,
    countTries = () => 3,
    tryMilliseconds = longestApiServerReadMilliseconds,
    pause: firstPause = 100,
    signal,
  }: ApiServerRequesterOptions = {},
): AskApiServer => {
  const source = createCredentialSource(credentials);
  let keptAgent: Agent | undefined;
  const findAgent = () => {
    keptAgent ??= new (loadHttps().Agent)({ keepAlive: true, maxSockets: 8 });
    return keptAgent;
  };
  const interrupt = signal && { signal };

  return async (path, deadline, { method, body, accept = "application/json", contentType = accept, repeat } = {}) => {
    let needsNewConnection = false;
    let areCredentialsRenewed = false;
    for (let attempt = 1; ; attempt++) {
      // Reading credentials and sending have `tryMilliseconds` each, because a credential plugin may ask the user. With
      // a body, both end at this review's deadline. Otherwise, they may end later: other reviews may need the answer.
      const readEnd = Date.now() + tryMilliseconds;
      const requestCredentials = await awaitUntil(body ? deadline : Math.max(deadline, readEnd), source.read(readEnd));
      const requestEnd = body && deadline < Number.POSITIVE_INFINITY ? deadline : Date.now() + tryMilliseconds;
      const { token, cert, key } = requestCredentials;
      const headers = {
        accept,
        "accept-encoding": "gzip",
        "user-agent": "postern",
        ...(token !== undefined && { authorization: `Bearer ${token}` }),
        ...connectionHeaders,
        ...(body && { "content-type": contentType }),
      };
      const answer: HttpsAnswer | UnansweredError = await send(
        `${server}${path}`,
        {
          method: method ?? (body ? "POST" : "GET"),
          headers,
          agent: needsNewConnection ? false : findAgent(),
          ...(ca && { ca }),
          ...(serverName && { servername: serverName }),
          ...(cert && key && { cert, key }),
          ...interrupt,
        },
        body && JSON.stringify(body),
        requestEnd,
      ).catch(requireUnansweredError);
      let pause = attempt < countTries() ? computePause(answer, repeat, firstPause * 2 ** (attempt - 1)) : undefined;
      if ("status" in answer && answer.status === 401) {
        await source.refused(requestCredentials);
        // The first 401 is followed by a try with new credentials, even if `countTries` allows no more.
        if (!areCredentialsRenewed) pause = 0;
        areCredentialsRenewed = true;
      }
      if (pause === undefined || Date.now() + pause >= deadline || signal?.aborted) {
        if ("status" in answer) return answer;
        throw answer;
      }
      // If a reused connection was dead, the other open connections may be dead, too: the next try opens a new one.
      needsNewConnection ||= answer instanceof UnansweredError;
      if (pause) await wait(pause, undefined, interrupt).catch(() => {});
    }
  };
};

/**
 * Returns the milliseconds until a request to the API server is repeated; undefined if it must not be repeated. (After
 * a 401, the caller repeats any request once, with new credentials.)
 *
 * | answer | requests that are repeated | pause |
 * | --- | --- | --- |
 * | 429: the server did not begin the request | all | the answer's Retry-After, or 1 s |
 * | 500, 502, 503 or 504 | those with `repeat: failed` | the answer's Retry-After, or `pause` |
 * | none, `unsent`: a reused connection was closed, as when Lambda froze the process | all but `repeat: never` | 0 |
 * | none, `lost`: the connection failed, or the answer was late | those with `repeat: failed` | `pause` |
 * | none for another reason, or another status | none | |
 */
const computePause = (
  answer: HttpsAnswer | UnansweredError,
  repeat: ApiServerRequest["repeat"] = "failed",
  pause: number,
): number | undefined => {
  const isSafe = repeat === "failed";
  if (answer instanceof UnansweredError) {
    if (answer.reason === "unsent") return repeat === "never" ? undefined : 0;
    return isSafe && answer.reason === "lost" ? pause : undefined;
  }
  const { status, retryAfter = status === 429 ? 1 : pause / 1000 } = answer;
  const isTemporary = status === 429 || (isSafe && [500, 502, 503, 504].includes(status));
  return isTemporary ? Math.min(Math.max(retryAfter, 0), maxRetryAfter) * 1000 : undefined;
};

/** The longest wait because of a Retry-After header, in seconds. */
const maxRetryAfter = 30;

/** The parsed JSON of an API server's answer, and the size of the answer in bytes. */
export interface ParsedApiServerAnswer {
  content: unknown;
  bytes: number;
}

/** Returns the JSON of an answer; undefined if the object doesn't exist (404). Throws for any other failure. */
export const parseAnswerUnlessNotFound = (answer: HttpsAnswer): ParsedApiServerAnswer | undefined => {
  const { status, body } = answer;
  const content = parseJson(body);
  if (status < 300 && content !== undefined) return { content: freezeDeep(content), bytes: body.length };
  if (isMissingObject(answer)) return undefined;
  const remedy = status === 403 ? "; npx postern manifests prints the ClusterRole that allows it" : "";
  throw new Error(`the API server answers ${status}: ${getFailureReason(answer)}${remedy}`);
};

/** Reports whether an answer is a 404 of a missing object. A 404 of a kind that isn't served names no object. */
export const isMissingObject = ({ status, body }: HttpsAnswer): boolean =>
  status === 404 && toMap(toMap(parseJson(body)).details).name !== undefined;

/** Returns why a request failed: the message of the Status, or the beginning of an answer that is no Status. */
export const getFailureReason = ({ body }: HttpsAnswer): string => {
  const { message } = toMap(parseJson(body));
  return typeof message === "string" ? message : body.slice(0, 200);
};
