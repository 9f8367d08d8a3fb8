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
  /** The CA certificates of the API server in PEM; several, if a new one is to be trusted besides the old one. */
  ca?: string;
  /** The name that the API server's certificate must have, if it isn't the address's host. */
  serverName?: string;
  /** Headers of each request. They may be secret, like the credentials. */
  headers?: Record<string, string | string[]>;
  credentials: ClusterCredentialSource;
}

export interface ApiServerRequest {
  /** By default GET, or POST with a body. */
  method?: "POST" | "PUT" | "PATCH" | "DELETE";
  body?: object;
  accept?: string;
  contentType?: string;
  /**
   * When to repeat the request, although the server may have carried it out: if it fails (the default), only if it
   * surely never arrived, or never.
   */
  repeat?: "failed" | "unsent" | "never";
}

/** Sends the API server a request, and repeats it where that is safe and may help. Resolves to any answer. */
export type AskApiServer = (path: string, deadline: number, request?: ApiServerRequest) => Promise<HttpsAnswer>;

export interface ApiServerRequesterOptions {
  send?: typeof sendRequest;
  /** Returns the most tries of a request. */
  countTries?: () => number;
  /** The most milliseconds of one try. */
  tryMilliseconds?: number;
  /** Milliseconds before the second try; they double for each further one. */
  pause?: number;
  /** Ends all requests. */
  signal?: AbortSignal;
}

/** The most milliseconds of one read. A read may outlive its review, because other reviews wait for it. */
export const longestApiServerReadMilliseconds = 10_000;

/** Returns the function that asks one API server. */
export const createApiServerRequester = (
  { server, ca, serverName, headers: always, credentials }: ApiServerConnection,
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
    let isFresh = false;
    let isRenewed = false;
    for (let attempt = 1; ; attempt++) {
      const latest = Date.now() + tryMilliseconds;
      // The time for credentials doesn't count as time of a try: a program may ask the user for them.
      const shown = await awaitUntil(body ? deadline : Math.max(deadline, latest), source.read(latest));
      const end = body && deadline < Number.POSITIVE_INFINITY ? deadline : Date.now() + tryMilliseconds;
      const { token, cert, key } = shown;
      const headers = {
        accept,
        "accept-encoding": "gzip",
        "user-agent": "postern",
        ...(token !== undefined && { authorization: `Bearer ${token}` }),
        ...always,
        ...(body && { "content-type": contentType }),
      };
      const answer: HttpsAnswer | UnansweredError = await send(
        `${server}${path}`,
        {
          method: method ?? (body ? "POST" : "GET"),
          headers,
          agent: isFresh ? false : findAgent(),
          ...(ca && { ca }),
          ...(serverName && { servername: serverName }),
          ...(cert && key && { cert, key }),
          ...interrupt,
        },
        body && JSON.stringify(body),
        end,
      ).catch(requireUnansweredError);
      let pause = attempt < countTries() ? pauseAfter(answer, repeat, firstPause * 2 ** (attempt - 1)) : undefined;
      if ("status" in answer && answer.status === 401) {
        await source.refused(shown);
        if (!isRenewed) pause = 0;
        isRenewed = true;
      }
      if (pause === undefined || Date.now() + pause >= deadline || signal?.aborted) {
        if ("status" in answer) return answer;
        throw answer;
      }
      // If a kept connection was dead, the others may be, too.
      isFresh ||= answer instanceof UnansweredError;
      if (pause) await wait(pause, undefined, interrupt).catch(() => {});
    }
  };
};

/**
 * Returns the milliseconds until a request to the API server is repeated; undefined if that would not help or not be
 * safe:
 *
 * | the answer is | repeated are | after |
 * | --- | --- | --- |
 * | 401 | all requests, once, with new credentials (see above) | no time |
 * | 429: the server did not begin the request | all requests | its Retry-After, or 1 s |
 * | 500, 502, 503 or 504 | requests that may be repeated if they failed | its Retry-After, or the pause |
 * | missing: a kept connection was closed, for instance while Lambda froze the process | all but those never repeated | no time |
 * | missing: the connection failed, or the answer was late | requests that may be repeated if they failed | the pause |
 */
const pauseAfter = (
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
  return isTemporary ? Math.min(Math.max(retryAfter, 0), longestBreak) * 1000 : undefined;
};

/** The longest wait that a Retry-After header may ask for, in seconds. */
const longestBreak = 30;

/** The parsed JSON of an API server's answer, and the size of the answer in bytes. */
export interface ParsedApiServerAnswer {
  content: unknown;
  bytes: number;
}

/** Returns the JSON of an answer; undefined for a 404 of an object that could exist. Throws for any other failure. */
export const parseAnswerUnlessNotFound = (answer: HttpsAnswer): ParsedApiServerAnswer | undefined => {
  const { status, body } = answer;
  const content = parseJson(body);
  if (status < 300 && content !== undefined) return { content: freezeDeep(content), bytes: body.length };
  if (isMissingObject(answer)) return undefined;
  const remedy = status === 403 ? "; npx postern manifests prints the ClusterRole that allows it" : "";
  throw new Error(`the API server answers ${status}: ${getFailureReason(answer)}${remedy}`);
};

/** Reports whether a 404 means that the object is missing; if the kind isn't served, the Status names no object. */
export const isMissingObject = ({ status, body }: HttpsAnswer): boolean =>
  status === 404 && toMap(toMap(parseJson(body)).details).name !== undefined;

/** Returns why a request failed: the message of the Status, else the beginning of the answer. */
export const getFailureReason = ({ body }: HttpsAnswer): string => {
  const { message } = toMap(parseJson(body));
  return typeof message === "string" ? message : body.slice(0, 200);
};
