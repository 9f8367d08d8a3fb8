import { Agent } from "node:https";
import { setTimeout as wait } from "node:timers/promises";
import { type HttpsAnswer, requireUnansweredError, sendRequest, UnansweredError } from "#lib/cluster/https-request.ts";
import { exactJson } from "#lib/exact-json.ts";
import { parseJson } from "#lib/json.ts";
import { sanitizeTerminalText } from "../../cli/terminal.ts";
import type { ClusterConnection } from "../../clusters/api.ts";

/** Sends a GET request to the API server, with retries, and returns the last answer or failure. */
export type ApiGet = (path: string, accept?: string) => Promise<HttpsAnswer | UnansweredError>;

/** Describes a failed request in words that follow a colon. */
export type FailureFormatter = (answer: HttpsAnswer | UnansweredError) => string;

export interface ApiReader {
  read: ApiGet;
  close(): void;
}

/** The time limit for one answer of the API server, in milliseconds. */
const patience = 30_000;
/** The limit for one answer of the API server, in bytes. A larger page is requested again with fewer objects. */
const largest = 8 * 1024 * 1024;
const tries = 5;
/** The number of tries while the server has not answered yet; few, because the address may be wrong. */
const firstTries = 2;
/** The longest wait that a Retry-After header may ask for, in seconds. */
const longestBreak = 30;

/**
 * Opens a reader of a cluster's API, which stops at `signal`. `retryPause` is the wait before the second try, in
 * milliseconds.
 */
export const openApiReader = (connection: ClusterConnection, signal: AbortSignal, retryPause = 500): ApiReader => {
  const { server, ca, cert, key } = connection;
  const trust = { ...(ca && { ca }), ...(cert && key && { cert, key }) };
  const agent = new Agent({ keepAlive: true, maxSockets: 4, ...trust });
  let most = firstTries;
  const ask = async (path: string, accept: string, isFresh: boolean) => {
    const token = await connection.token();
    const headers = {
      ...{ accept, "accept-encoding": "gzip", "user-agent": "postern" },
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
    };
    // A retry opens a new connection: if one kept connection was dead, the others may be, too.
    const options = { headers, ...(isFresh ? { agent: false as const, signal, ...trust } : { agent }) };
    return sendRequest(`${server}${path}`, options, undefined, Date.now() + patience, largest).catch(
      requireUnansweredError,
    );
  };
  return {
    read: async (path, accept = "application/json") => {
      for (let attempt = 1, pause = retryPause; ; attempt++, pause *= 2) {
        const answer = await ask(path, accept, attempt > 1);
        if (!(answer instanceof UnansweredError)) most = tries;
        if (attempt >= most || signal.aborted || !mayHelpAgain(answer, attempt)) {
          // A server that can't be reached now may stay so: the next request gets fewer tries.
          if (answer instanceof UnansweredError && !isUnansweredAsTooLarge(answer)) most = firstTries;
          return answer;
        }
        const seconds = answer instanceof UnansweredError ? undefined : answer.retryAfter;
        const milliseconds = seconds === undefined ? pause : Math.min(Math.max(seconds, 0), longestBreak) * 1000;
        await wait(milliseconds, undefined, { signal }).catch(() => {});
      }
    },
    close: () => agent.destroy(),
  };
};

const mayHelpAgain = (answer: HttpsAnswer | UnansweredError, attempt: number): boolean => {
  if (answer instanceof UnansweredError) return !isUnansweredAsTooLarge(answer);
  // The token may have expired; the second try asks for a new one.
  if (answer.status === 401) return attempt === 1;
  return [429, 500, 502, 503, 504].includes(answer.status);
};

/** Reports whether an answer is missing because it was larger than the limit. */
export const isUnansweredAsTooLarge = (answer: HttpsAnswer | UnansweredError): boolean =>
  answer instanceof UnansweredError && answer.message.startsWith("its answer has more than ");

/** Returns an answer parsed as JSON; undefined if it isn't JSON. */
export const parseAnswerJson = ({ body }: HttpsAnswer): unknown => parseJson(body, exactJson.parse);

/** Returns a sentence about an API server that can't be reached or answers with an error, with advice if possible. */
export const describeFailure = (
  answer: HttpsAnswer | UnansweredError,
  { server, credentialsAdvice }: Pick<ClusterConnection, "server" | "credentialsAdvice">,
): string => {
  if (answer instanceof UnansweredError) {
    const remedy = /self-signed|unable to (get|verify)/.test(answer.message)
      ? "; its ca must be the one that signed its certificate"
      : "";
    return `the API server at ${server} can't be reached: ${answer.message}${remedy}`;
  }
  const { message } = Object(parseAnswerJson(answer));
  const text = typeof message === "string" ? message : answer.body.slice(0, 200);
  const words = sanitizeTerminalText(text.replace(/\s+/g, " ").trim());
  const remedy = answer.status === 401 ? `; ${credentialsAdvice}` : "";
  return `the API server answers ${answer.status}${words === "" ? "" : `: ${words}`}${remedy}`;
};
