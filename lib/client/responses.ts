import { type Failure, toFailureStatus } from "../failure.ts";
import { fitWarnings, type Status } from "../review.ts";
import { jsonContentType } from "./request-body.ts";

/** The Status of an error response, as the API server sends it. */
export interface ErrorStatus extends Status {
  kind: "Status";
  apiVersion: "v1";
  metadata: object;
  status: "Failure";
}

/** The members that all error responses have. */
const frame = { kind: "Status", apiVersion: "v1", metadata: {}, status: "Failure" } as const;

/** Returns the Status that the API server sends when the webhook `entry` denies a request. */
export const buildWebhookDenialStatus = (entry: string, status: Status): ErrorStatus => {
  const { code, message, reason } = status;
  const text = message || reason;
  return {
    ...frame,
    ...status,
    message: `admission webhook "${entry}" denied the request${text ? `: ${text}` : " without explanation"}`,
    code: Number.isInteger(code) && code >= 400 && code < 600 ? code : 403,
  };
};

/** Returns the Status that the API server sends when a call of the webhook `entry` fails. */
export const buildWebhookCallFailure = (entry: string, { message }: Failure): ErrorStatus => {
  const cause = `failed calling webhook "${entry}": ${message}`;
  return {
    ...frame,
    message: `Internal error occurred: ${cause}`,
    reason: "InternalError",
    details: { causes: [{ message: cause }] },
    code: 500,
  };
};

/** Returns the response for a request that Postern can't evaluate, in the form of the API server's responses. */
export const toFailureResponse = ({ code, message }: Failure): Response =>
  toErrorResponse({ ...frame, ...toFailureStatus(code, message) } as ErrorStatus);

export const toErrorResponse = (status: ErrorStatus): Response =>
  new Response(JSON.stringify(status), { status: status.code, headers: { "content-type": jsonContentType } });

/** Adds warnings to a response as Warning headers, within the API server's limits. */
export const addWarnings = (response: Response, warnings: readonly string[]): Response => {
  const fitting = fitWarnings(warnings);
  if (fitting.length === 0) return response;
  const { status, statusText } = response;
  const headers = new Headers(response.headers);
  // Values of headers are bytes, so each byte of the UTF-8 text becomes one character.
  for (const text of fitting)
    headers.append("warning", `299 - "${Buffer.from(text).toString("latin1").replace(/["\\]/g, "\\$&")}"`);
  return new Response(response.body, { status, statusText, headers });
};
