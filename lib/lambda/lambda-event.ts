import { isUtf8 } from "node:buffer";
import { type CallerTimeout, parseTimeout } from "../core/deadline.ts";
import { buildAnswerHeaders, isPhase, type ReviewHttpRequest, type ReviewToEvaluate } from "../core/endpoint.ts";
import { createNotTextFailure, Failure } from "../failure.ts";
import "../features.ts";
import { isObject, type JsonMap, toMap, toText } from "../json.ts";
import { createRecordedCapabilities } from "../recording/recorded-answers.ts";

/** An HTTP request in a Lambda event, with a timeout, not a deadline; `answer` builds the event's kind of response. */
export interface LambdaHttpRequest extends Omit<ReviewHttpRequest, "deadline">, CallerTimeout {
  /** Empty except for load balancers, whose health checks are recognized by it. */
  userAgent: string;
  answer(code: number, json: string): unknown;
}

const toOptionalText = (value: unknown) => (value === undefined ? undefined : String(value));
const toLastText = (value: unknown): string => toText(Array.isArray(value) ? value.at(-1) : value);

/** Reports whether a Lambda event is a direct invocation, not an HTTP request. It needs a right in IAM, but no key. */
export const isDirectInvocation = (event: unknown): event is JsonMap =>
  "review" in toMap(event) && "phase" in toMap(event);

/** Returns the review in an event that a client of Lambda sent without HTTP. */
export const readDirectInvocation = (
  { phase, variant, member, cluster, review, settings, kubernetes, needs, now }: JsonMap,
  deadline: number,
): ReviewToEvaluate => {
  if (!isPhase(phase)) throw new Failure(400, "phase must be mutate or validate");
  const time = now === undefined ? undefined : new Date(String(now));
  if (Number.isNaN(time?.getTime())) throw new Failure(400, "now must be a time, for instance 2026-01-01T00:00:00Z");
  // If the event has settings, a rule gets only the recorded answers in `needs`, and asks no cluster or service: the
  // function's permissions fit only its own settings. The build sets POSTERN_NEEDS to false if no rule asks.
  const answers = settings === undefined ? needs : (needs ?? {});
  return {
    phase,
    variant: toOptionalText(variant),
    member: toOptionalText(member),
    cluster: toText(cluster),
    review,
    settings,
    kubernetes: toOptionalText(kubernetes),
    capabilities: POSTERN_NEEDS && isObject(answers) ? createRecordedCapabilities(answers) : undefined,
    now: time,
    deadline,
  };
};

/** Reads events of HTTP APIs (2.0 and 1.0), REST APIs, function URLs and load balancers. Throws for any other event. */
export const readLambdaEvent = (value: unknown): LambdaHttpRequest => {
  const event = toMap(value);
  const context = toMap(event.requestContext);
  const http = toMap(context.http);
  const headers = toMap(event.headers);
  const headerLists = toMap(event.multiValueHeaders);
  const getHeader = (name: string): string => {
    if (name in headers) return toLastText(headers[name]);
    const found = [headers, headerLists].flatMap(Object.entries).find(([key]) => key.toLowerCase() === name);
    return toLastText(found?.[1]);
  };
  const time = context.timeEpoch ?? context.requestTimeEpoch;
  const isVersion2 = event.version === "2.0" && event.requestContext !== undefined;
  if (!isVersion2 && typeof event.httpMethod !== "string")
    throw new Failure(400, "the event is neither an HTTP request from AWS nor { phase, review }");

  return {
    method: toText(isVersion2 ? http.method : event.httpMethod),
    path: toText(isVersion2 ? event.rawPath : event.path),
    contentType: getHeader("content-type"),
    // Only for load balancers, whose health checks are recognized by it.
    userAgent: "elb" in context ? getHeader("user-agent") : "",
    timeout: parseTimeout(
      toLastText(toMap(event.queryStringParameters).timeout ?? toMap(event.multiValueQueryStringParameters).timeout),
    ),
    since: typeof time === "number" ? time : undefined,
    readBody: () => decodeEventBody(event),
    answer: (code, json) => {
      const answerHeaders = buildAnswerHeaders(code);
      const multiValueHeaders = Object.fromEntries(Object.entries(answerHeaders).map(([key, value]) => [key, [value]]));
      return {
        statusCode: code,
        ...("elb" in context && { statusDescription: String(code) }),
        headers: answerHeaders,
        ...(event.multiValueHeaders != null && { multiValueHeaders }),
        body: json,
        isBase64Encoded: false,
      };
    },
  };
};

/** Returns the body of an HTTP event as text. A Failure says why it is no text. */
const decodeEventBody = ({ body, isBase64Encoded }: JsonMap): string => {
  if (body == null) return "";
  if (typeof body !== "string") throw new Failure(400, "the event's body is not a string");
  if (isBase64Encoded !== true) return body;
  const padding = body.endsWith("==") ? 2 : body.endsWith("=") ? 1 : 0;
  const bytes = Buffer.from(body, "base64");
  // Node ignores characters that aren't base64, so that fewer bytes result.
  if (bytes.length !== Math.floor(((body.length - padding) * 3) / 4))
    throw new Failure(400, "the body is not base64, though its event says so");
  if (!isUtf8(bytes)) throw createNotTextFailure();
  return bytes.toString();
};
