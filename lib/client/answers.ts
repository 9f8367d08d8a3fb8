import { type Failure, failureStatus } from "../failure.ts";
import { fitWarnings, type Status } from "../review.ts";
import { json } from "./body.ts";

export interface Refusal extends Status {
  kind: "Status";
  apiVersion: "v1";
  metadata: object;
  status: "Failure";
}

/** Returns the Status that the API server sends when the webhook `entry` denies a request. */
export const denied = (entry: string, status: Status): Refusal => {
  const { code, message, reason } = status;
  const said = message || reason;
  const ending = said ? `: ${said}` : " without explanation";
  return {
    ...frame,
    ...status,
    message: `admission webhook "${entry}" denied the request${ending}`,
    code: Number.isInteger(code) && code >= 400 && code < 600 ? code : 403,
  };
};

/** Returns the Status that the API server sends when a call of the webhook `entry` fails. */
export const failed = (entry: string, { message }: Failure): Refusal => {
  const what = `failed calling webhook "${entry}": ${message}`;
  return {
    ...frame,
    message: `Internal error occurred: ${what}`,
    reason: "InternalError",
    details: { causes: [{ message: what }] },
    code: 500,
  };
};

const frame = { kind: "Status", apiVersion: "v1", metadata: {}, status: "Failure" } as const;

export const unfit = ({ code, message }: Failure): Response =>
  answer({ ...frame, ...failureStatus(code, message) } as Refusal);

export const answer = (refusal: Refusal): Response =>
  new Response(JSON.stringify(refusal), { status: refusal.code, headers: { "content-type": json } });

/** Adds warnings to a response as Warning headers, within the API server's limits. */
export const warned = (response: Response, warnings: readonly string[]): Response => {
  const fit = fitWarnings(warnings);
  if (fit.length === 0) return response;
  const { status, statusText } = response;
  const headers = new Headers(response.headers);
  // Header values are bytes: each byte of the UTF-8 text becomes one character.
  for (const text of fit)
    headers.append("warning", `299 - "${Buffer.from(text).toString("latin1").replace(/["\\]/g, "\\$&")}"`);
  return new Response(response.body, { status, statusText, headers });
};
