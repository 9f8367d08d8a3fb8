import { type Failure, failureStatus } from "../failure.ts";
import { fitWarnings, type Status } from "../review.ts";
import { json } from "./body.ts";

/** A Status as a program receives it. */
export interface Refusal extends Status {
  kind: "Status";
  apiVersion: "v1";
  metadata: object;
  status: "Failure";
}

/** What the API server would tell of a webhook that denies. */
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

/** What it would tell of one that gives no answer. */
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

/** What can't be judged, or not sent as it would have to be. */
export const unfit = ({ code, message }: Failure): Response =>
  answer({ ...frame, ...failureStatus(code, message) } as Refusal);

/** A refusal, as the API server would have sent it. */
export const answer = (refusal: Refusal): Response =>
  new Response(JSON.stringify(refusal), { status: refusal.code, headers: { "content-type": json } });

/** An answer with what rules warn of, as the API server would pass it on. */
export const warned = (response: Response, warnings: readonly string[]): Response => {
  const fit = fitWarnings(warnings);
  if (fit.length === 0) return response;
  const { status, statusText } = response;
  const headers = new Headers(response.headers);
  // Headers are bytes, each written as a character.
  for (const text of fit)
    headers.append("warning", `299 - "${Buffer.from(text).toString("latin1").replace(/["\\]/g, "\\$&")}"`);
  return new Response(response.body, { status, statusText, headers });
};
