import { createApiServerRequester } from "#lib/cluster/api-server.ts";
import { type HttpsAnswer, requireUnansweredError, sendRequest, UnansweredError } from "#lib/cluster/https-request.ts";
import { exactJson } from "#lib/exact-json.ts";
import { parseJson } from "#lib/json.ts";
import type { ClusterConnection } from "../../clusters/api.ts";

/** Sends a GET request to the API server, with retries, and returns the last answer or failure. */
export type ApiGet = (path: string, accept?: string) => Promise<HttpsAnswer | UnansweredError>;

/** Describes a failed request in words that follow a colon. */
export type FailureFormatter = (answer: HttpsAnswer | UnansweredError) => string;

/** The time limit for one answer of the API server, in milliseconds. */
const answerMilliseconds = 30_000;
/** The limit for one answer of the API server, in bytes. A larger page is requested again with fewer objects. */
const maxAnswerBytes = 8 * 1024 * 1024;
const tries = 5;
/** The number of tries while the server has not answered yet; few, because the address may be wrong. */
const firstTries = 2;

/** Opens a reader of a cluster's API, which stops at `signal`. */
export const openApiReader = (connection: ClusterConnection, signal: AbortSignal): ApiGet => {
  let maxTries = firstTries;
  const ask = createApiServerRequester(connection, {
    send: async (url, options, body, deadline) => {
      const answer = await sendRequest(url, options, body, deadline, maxAnswerBytes);
      maxTries = tries;
      return answer;
    },
    countTries: () => maxTries,
    tryMilliseconds: answerMilliseconds,
    pause: 500,
    signal,
  });
  return async (path, accept) => {
    const answer = await ask(path, Number.POSITIVE_INFINITY, accept === undefined ? {} : { accept }).catch(
      requireUnansweredError,
    );
    // A server that can't be reached now may stay so: the next request gets fewer tries.
    if (answer instanceof UnansweredError && !isUnansweredAsTooLarge(answer)) maxTries = firstTries;
    return answer;
  };
};

/** Reports whether an answer is missing because it was larger than the limit. */
export const isUnansweredAsTooLarge = (answer: HttpsAnswer | UnansweredError): boolean =>
  answer instanceof UnansweredError && answer.reason === "large";

/** Returns an answer parsed as JSON; undefined if it isn't JSON. */
export const parseAnswerJson = ({ body }: HttpsAnswer): unknown => parseJson(body, exactJson.parse);
