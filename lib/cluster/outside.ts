import type { RequestOptions } from "node:https";
import { setTimeout as wait } from "node:timers/promises";
import { Failure, getErrorMessage } from "../failure.ts";
import type { AwsAction, AwsRequest, Capabilities, CredentialPlace, HttpsRequest, HttpsResponse } from "../needs.ts";
import { type AnswerCache, askThroughSharedCache } from "./answer-cache.ts";
import {
  buildBasicAuthorization,
  createTokenSource,
  getAwsServiceUrl,
  readAwsKeysFromEnvironment,
} from "./credentials.ts";
import { awaitUntil, type HttpsAnswer, requireUnansweredError, sendRequest, UnansweredError } from "./https-request.ts";
import { type AwsKeys, signHeaders } from "./signature.ts";

/** Requests end these milliseconds before the review, so that the rule can still decide without an answer. */
const endMargin = 100;

/** The state that the capabilities of one review share. */
export interface ReviewCapabilityState {
  readonly cluster: string;
  readonly cache: AnswerCache;
  /** All times are in milliseconds since the epoch. */
  readonly deadline: number;
  /** When the review started, or when it last found that its earlier reads are outdated. */
  started: number;
  /**
   * In the second evaluation of a rule that refused because of cached answers: answers from before this time may not be
   * used. In the first evaluation, it is undefined, and answers of any age may be used.
   */
  readonly freshSince: number | undefined;
  /** True if this review used a cached answer whose request was sent before the review started. */
  usedCache: boolean;
  /** How many of the review's updates conflicted with another client's. */
  conflicts: number;
}

/** Returns the capabilities for requests to services outside the cluster and to AWS, for one review. */
export const createOutsideServiceCapabilities = (
  review: ReviewCapabilityState,
): Pick<Capabilities, "https" | "http" | "aws"> => {
  const { cluster, cache, deadline, freshSince, started } = review;

  const call = async (
    { keep, isLasting, milliseconds = Number.POSITIVE_INFINITY, connect, ...request }: HttpsRequest,
    schemes = ["https:"],
  ): Promise<HttpsResponse> => {
    const { protocol = "", host = request.url } = URL.canParse(request.url) ? new URL(request.url) : {};
    if (!schemes.includes(protocol))
      throw new Failure(500, `could not ask ${host}: its address must begin with ${schemes.join("// or ")}//`);
    const fail = (error: Error) => {
      throw new Failure(503, `could not ask ${host}: ${error.message}`, { cause: error });
    };
    const until = Math.min(deadline - endMargin, Date.now() + milliseconds);
    const send = () => askAuthorized({ ...request, ...(connect && { connect }) }, until);
    if (keep === undefined) return send().catch(fail);

    const key = JSON.stringify(["https", cluster, request]);
    const search = async () => {
      const content = await send();
      return { content, bytes: keep(content) > 0 ? key.length + content.body.length : undefined };
    };
    const recall = async (earliest: number) => {
      const shared = await askThroughSharedCache(cache, key, earliest, until, search).catch(fail);
      // The cast is safe: only `search` writes this key.
      const answer = shared.content as HttpsResponse;
      const seconds = keep(answer);
      const isExpired = shared.sent < started && shared.sent + seconds * 1000 <= started;
      // If an answer isn't cached, or is too old for this review, only the review that sent its request may use it.
      return { ...shared, answer, isUsable: shared.isOurs || (seconds > 0 && !isExpired) };
    };
    // If an answer `isLasting`, a rule may refuse because of it at any age. Other answers must not be older than
    // `freshSince` in a second evaluation.
    const cached = await recall(isLasting ? 0 : (freshSince ?? 0));
    // If that answer can't be used, the next must come from a later request, sent at this review's start or after it.
    const found = cached.isUsable ? cached : await recall(Math.max(started, cached.sent + 1));
    // If the rule refuses because of an older answer, it is evaluated a second time.
    if (found.sent < started && !isLasting) review.usedCache = true;
    return found.answer;
  };
  const httpsOrHttp = ["https:", "http:"];
  return {
    https: (request) => call(request),
    http: (request) => call(request, httpsOrHttp),
    aws: async (action, request) => call(buildAwsRequest(action, request), httpsOrHttp),
  };
};

/**
 * Sends a request with the token and the client certificate whose places it names. If the answer is 401, reads the
 * token again and repeats the request once, because the stored token may have been replaced.
 */
const askAuthorized = async (
  { bearer, username, client, ...request }: HttpsRequest,
  deadline: number,
): Promise<HttpsResponse> => {
  const clientCertificate = client && {
    cert:
      typeof client.certificate === "string"
        ? client.certificate
        : await readCredential(client.certificate, deadline, "its client certificate"),
    key: await readCredential(client.key, deadline, "the key of its client certificate"),
  };
  if (bearer === undefined) return ask(request, deadline, clientCertificate);
  for (let isRepeated = false; ; isRepeated = true) {
    const value = await readCredential(bearer, deadline, "its token");
    const authorization = username === undefined ? `Bearer ${value}` : buildBasicAuthorization(username, value);
    const headers = { ...request.headers, authorization };
    const answer = await ask({ ...request, headers }, deadline, clientCertificate);
    if (answer.status !== 401 || isRepeated) return answer;
    await getTokenSource(bearer).refused(value);
  }
};

const readCredential = async (place: CredentialPlace, deadline: number, description: string): Promise<string> => {
  // The fetch may go on after this review's deadline: other reviews may wait for it, and later ones use its value.
  const reading = awaitUntil(deadline, getTokenSource(place).read(Date.now() + fetchMilliseconds));
  const value = await reading.catch((error: Error) => {
    throw error instanceof UnansweredError ? error : new Error(`${description} could not be read`, { cause: error });
  });
  return String(value);
};

const getTokenSource = (place: CredentialPlace) => {
  const key = JSON.stringify(place);
  const source = tokenSources.get(key) ?? createTokenSource(place);
  tokenSources.set(key, source);
  return source;
};

/** The time limit for fetching a token. It is longer than a review may have, because several reviews share it. */
const fetchMilliseconds = 10_000;
/** The token sources by the place of the token, as JSON. Settings name few places, so none is ever deleted. */
const tokenSources = new Map<string, ReturnType<typeof createTokenSource>>();

/**
 * Sends a request, and repeats it while that may help. Returns the answer to the last try. If that try has no answer at
 * the deadline, returns the last answer to an earlier try. If it fails before the deadline, throws its error.
 */
const ask = async (
  request: HttpsRequest,
  deadline: number,
  client?: Pick<RequestOptions, "cert" | "key">,
): Promise<HttpsResponse> => {
  const {
    url,
    method = "GET",
    headers = {},
    body,
    ca,
    serverName,
    connect,
    maximumBytes,
    withHeaders,
    tries = 1,
    pause = 0,
  } = request;
  const options = {
    method,
    headers,
    ...(ca && { ca }),
    ...(serverName && { servername: serverName }),
    ...client,
    ...connect,
  };
  let lastAnswer: HttpsAnswer | undefined;
  for (let attempt = 1, delay = pause; ; attempt++, delay *= 1.5) {
    const answer = await sendRequest(url, options, body, deadline, maximumBytes).catch(requireUnansweredError);
    if (!(answer instanceof UnansweredError)) lastAnswer = answer;
    const retryAfter = answer instanceof UnansweredError ? 0 : (answer.retryAfter ?? 0) * 1000;
    const nextPause = Math.max(delay * (1 + Math.random() / 5), retryAfter);
    if (attempt < tries && isTemporary(answer) && Date.now() + nextPause < deadline) await wait(nextPause);
    else if (lastAnswer === undefined || (answer instanceof UnansweredError && Date.now() < deadline)) throw answer;
    else {
      const { status, body, headers, trailers } = lastAnswer;
      return { status, body, ...(withHeaders && { headers, trailers }) };
    }
  }
};

/** Reports whether another try may have a better answer: as DefaultShouldRetry for webhooks of the API server. */
const isTemporary = (answer: HttpsAnswer | UnansweredError): boolean => {
  if (!(answer instanceof UnansweredError))
    return [429, 500, 504].includes(answer.status) || answer.retryAfter !== undefined;
  const { cause } = answer;
  return cause instanceof Error && "code" in cause && cause.code === "ECONNRESET";
};

/** The version of each AWS service's API. */
const versions = { ec2: "2016-11-15" };

/** Returns a signed request for an action such as ec2:DescribeVolumes. */
const buildAwsRequest = (action: AwsAction, { region, parameters }: AwsRequest): HttpsRequest => {
  const [service, name = ""] = action.split(":") as [keyof typeof versions, string];
  const { origin, host } = getAwsServiceUrl(service, region);
  const body = new URLSearchParams({ ...parameters, Action: name, Version: versions[service] }).toString();
  const headers = { "content-type": "application/x-www-form-urlencoded; charset=utf-8" };
  let identity: AwsKeys;
  try {
    identity = readAwsKeysFromEnvironment();
  } catch (error) {
    // Missing or invalid credentials are a fault of Postern's deployment, not of the rule.
    throw new Failure(503, `could not ask AWS: ${getErrorMessage(error)}`, { cause: error });
  }
  const request = { method: "POST" as const, host, path: "/", service, region, headers, body };
  return {
    url: `${origin}/`,
    method: "POST",
    headers: signHeaders(request, identity, new Date()),
    body,
    tries: 3,
    pause: 100,
  };
};
