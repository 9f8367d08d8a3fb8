import { isUtf8 } from "node:buffer";
import { Failure } from "./failure.ts";
import { isObject } from "./json.ts";

/**
 * An HTTP request from the API server, read from a Lambda event; `answer` builds the response in that event's format.
 */
export interface ApiServerHttpRequest {
  method: string;
  path: string;
  contentType: string;
  userAgent: string;
  /** The milliseconds that the API server waits for the answer. */
  timeout: number | undefined;
  /** The time when the request reached AWS, in milliseconds since the epoch. */
  since: number | undefined;
  /** Decodes the request body of the event, perhaps from base64; called only after the key in the URL was checked. */
  body(): string;
  answer(code: number, json: string): unknown;
}

/** An invocation without HTTP, which only IAM can allow. */
export interface DirectInvocation {
  phase: unknown;
  variant?: unknown;
  member?: unknown;
  cluster?: unknown;
  review: unknown;
  settings?: unknown;
  /** The minor version of Kubernetes, instead of the cluster's. */
  kubernetes?: unknown;
  needs?: unknown;
  now?: unknown;
}

type Fields = Record<string, unknown>;
const toFields = (value: unknown): Fields => (isObject(value) ? (value as Fields) : {});
const toText = (value: unknown): string => (typeof value === "string" ? value : "");
const toLastText = (value: unknown): string => toText(Array.isArray(value) ? value.at(-1) : value);

/** Reports whether a Lambda event is a direct invocation by Postern, without an HTTP request. */
export const isDirectInvocation = (event: unknown): event is DirectInvocation =>
  "review" in toFields(event) && "phase" in toFields(event);

/** Reads events of HTTP API 2.0 and 1.0, REST proxy, function URL and ALB; throws for any other event. */
export const readLambdaEvent = (value: unknown): ApiServerHttpRequest => {
  const event = toFields(value);
  const context = toFields(event.requestContext);
  const http = toFields(context.http);
  const headers = toFields(event.headers);
  const lists = toFields(event.multiValueHeaders);
  const getHeader = (name: string): string => {
    if (name in headers) return toLastText(headers[name]);
    const found = [headers, lists].flatMap(Object.entries).find(([key]) => key.toLowerCase() === name);
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
    userAgent: "elb" in context ? getHeader("user-agent") : "",
    timeout: parseSeconds(
      toLastText(
        toFields(event.queryStringParameters).timeout ?? toFields(event.multiValueQueryStringParameters).timeout,
      ),
    ),
    since: typeof time === "number" ? time : undefined,
    body: () => decodeEventBody(event),
    answer: (code, json) => {
      const sent: Record<string, string> = { "content-type": "application/json" };
      if (code === 405) sent.allow = "POST";
      const lists = Object.fromEntries(Object.entries(sent).map(([key, value]) => [key, [value]]));
      return {
        statusCode: code,
        ...("elb" in context && { statusDescription: String(code) }),
        headers: sent,
        ...(event.multiValueHeaders != null && { multiValueHeaders: lists }),
        body: json,
        isBase64Encoded: false,
      };
    },
  };
};

/** Parses a timeout such as `10s`, the only form that the API server writes, to milliseconds; else undefined. */
const parseSeconds = (value: string): number | undefined => {
  const [, number] = /^(\d{1,5})s$/.exec(value) ?? [];
  return number === undefined ? undefined : Number(number) * 1000;
};

const decodeEventBody = ({ body, isBase64Encoded }: Fields): string => {
  if (body == null) return "";
  if (typeof body !== "string") throw new Failure(400, "the event's body is not a string");
  if (isBase64Encoded !== true) return body;

  const padding = body.endsWith("==") ? 2 : body.endsWith("=") ? 1 : 0;
  const bytes = Buffer.from(body, "base64");
  if (bytes.length !== Math.floor(((body.length - padding) * 3) / 4))
    throw new Failure(400, "the body is not base64, though its event says so");
  if (!isUtf8(bytes)) throw new Failure(400, "the body is not UTF-8; an AdmissionReview as JSON is expected");
  return bytes.toString();
};
