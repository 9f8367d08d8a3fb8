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
/** How often a request is tried at a server that has answered before. */
const triesAfterAnswer = 5;
/** How often a request is tried at a server that has not answered yet: less often, because the address may be wrong. */
const triesBeforeAnswer = 2;
const noDeadline = Number.POSITIVE_INFINITY;

/** Opens a reader of a cluster's API, which stops at `signal`. */
export const openApiReader = (connection: ClusterConnection, signal: AbortSignal): ApiGet => {
  let maxTries = triesBeforeAnswer;
  const ask = createApiServerRequester(connection, {
    send: async (url, options, body, deadline) => {
      const answer = await sendRequest(url, options, body, deadline, maxAnswerBytes);
      maxTries = triesAfterAnswer;
      return answer;
    },
    countTries: () => maxTries,
    tryMilliseconds: answerMilliseconds,
    pause: 500,
    signal,
  });
  return async (path, accept) => {
    const request = accept === undefined ? {} : { accept };
    const answer = await ask(path, noDeadline, request).catch(requireUnansweredError);
    // A server that can't be reached now may stay so: the next request gets fewer tries.
    if (answer instanceof UnansweredError && !isUnansweredAsTooLarge(answer)) maxTries = triesBeforeAnswer;
    return answer;
  };
};

/** Reports whether an answer is missing because it was larger than the limit. */
export const isUnansweredAsTooLarge = (answer: HttpsAnswer | UnansweredError): boolean =>
  answer instanceof UnansweredError && answer.reason === "large";

/** Returns an answer parsed as JSON; undefined if it isn't JSON. */
export const parseAnswerJson = ({ body }: HttpsAnswer): unknown => parseJson(body, exactJson.parse);
