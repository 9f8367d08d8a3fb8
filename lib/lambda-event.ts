import { isUtf8 } from "node:buffer";
import { Failure } from "./failure.ts";
import { isObject } from "./json.ts";

export interface Call {
  method: string;
  path: string;
  contentType: string;
  userAgent: string;
  /** How long the API server waits for the answer, in milliseconds. */
  timeout: number | undefined;
  /** When the request reached AWS, in milliseconds since the epoch. */
  since: number | undefined;
  /** Decodes the body; called only after the key was checked. */
  body(): string;
  answer(code: number, json: string): unknown;
}

/** An invocation without HTTP, which only IAM can allow. */
export interface Direct {
  phase: unknown;
  variant?: unknown;
  member?: unknown;
  cluster?: unknown;
  review: unknown;
  settings?: unknown;
  needs?: unknown;
  now?: unknown;
}

type Fields = Record<string, unknown>;
const fields = (value: unknown): Fields => (isObject(value) ? (value as Fields) : {});
const text = (value: unknown): string => (typeof value === "string" ? value : "");
const last = (value: unknown): string => text(Array.isArray(value) ? value.at(-1) : value);

export const isDirect = (event: unknown): event is Direct => "review" in fields(event) && "phase" in fields(event);

/** Reads events of HTTP API 2.0 and 1.0, REST proxy, function URL and ALB; throws for any other event. */
export const read = (given: unknown): Call => {
  const event = fields(given);
  const context = fields(event.requestContext);
  const http = fields(context.http);
  const headers = fields(event.headers);
  const lists = fields(event.multiValueHeaders);
  const header = (name: string): string => {
    if (name in headers) return last(headers[name]);
    const found = [headers, lists].flatMap(Object.entries).find(([key]) => key.toLowerCase() === name);
    return last(found?.[1]);
  };
  const time = context.timeEpoch ?? context.requestTimeEpoch;
  const isVersion2 = event.version === "2.0" && event.requestContext !== undefined;
  if (!isVersion2 && typeof event.httpMethod !== "string")
    throw new Failure(400, "this is neither an HTTP request as AWS hands it on, nor { phase, review }");

  return {
    method: text(isVersion2 ? http.method : event.httpMethod),
    path: text(isVersion2 ? event.rawPath : event.path),
    contentType: header("content-type"),
    userAgent: "elb" in context ? header("user-agent") : "",
    timeout: seconds(
      last(fields(event.queryStringParameters).timeout ?? fields(event.multiValueQueryStringParameters).timeout),
    ),
    since: typeof time === "number" ? time : undefined,
    body: () => bodyOf(event),
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

/** Parses a Go duration of whole seconds, the form that the API server writes, to milliseconds. */
const seconds = (value: string): number | undefined => {
  const [, number] = /^(\d{1,5})s$/.exec(value) ?? [];
  return number === undefined ? undefined : Number(number) * 1000;
};

const bodyOf = ({ body, isBase64Encoded }: Fields): string => {
  if (body == null) return "";
  if (typeof body !== "string") throw new Failure(400, "the event's body is no text");
  if (isBase64Encoded !== true) return body;

  const padding = body.endsWith("==") ? 2 : body.endsWith("=") ? 1 : 0;
  const bytes = Buffer.from(body, "base64");
  if (bytes.length !== Math.floor(((body.length - padding) * 3) / 4))
    throw new Failure(400, "the body is not base64, though its event says so");
  if (!isUtf8(bytes)) throw new Failure(400, "the body is not UTF-8; an AdmissionReview as JSON is expected");
  return bytes.toString();
};
