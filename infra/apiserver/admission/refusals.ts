import { isMap, type Json } from "#lib/json.ts";
import type { Status } from "#lib/review.ts";

/** 500, as an API server says what went wrong inside it. */
export const internalError = (text: string): Status => {
  return {
    code: 500,
    reason: "InternalError",
    message: `Internal error occurred: ${text}`,
    details: { causes: [{ message: text }] },
  };
};

/** 500, as an API server says that a hook could not be called. */
export const callFailure = (hook: string, text: string): Status =>
  internalError(`failed calling webhook "${hook}": ${text}`);

/** 400, where a hook may do something outside and nothing may be done. */
export const dryRunUnsupported = (hook: string): Status => {
  return { code: 400, reason: "BadRequest", message: `admission webhook "${hook}" does not support dry run` };
};

/** 504, where there is no time left. */
export const outOfTime = (): Status => {
  return {
    code: 504,
    reason: "Timeout",
    message: "Timeout: request did not complete within requested timeout",
    details: {},
  };
};

/** What a client hears of a hook's refusal, whatever the hook said. */
export const refusalOf = (hook: string, given: Json = {}): Status => {
  const { code, message, reason, details } = given;
  const deniedBy = `admission webhook "${hook}" denied the request`;
  const text = [message, reason].find((one) => typeof one === "string" && one !== "");
  return {
    code: typeof code === "number" && code >= 400 ? code : 400,
    ...(typeof reason === "string" && reason !== "" && { reason }),
    message: text === undefined ? `${deniedBy} without explanation` : `${deniedBy}: ${text}`,
    ...(isMap(details) && { details: detailsOf(details) }),
  };
};

/** What there is room for in a Status. */
const detailsOf = ({ name, group, kind, uid, causes, retryAfterSeconds }: Json): Status["details"] & object => {
  const texts = Object.entries({ name, group, kind, uid }).filter(([, one]) => typeof one === "string" && one !== "");
  const listed = Array.isArray(causes) ? causes.filter(isMap) : [];
  return {
    ...Object.fromEntries(texts),
    ...(listed.length > 0 && {
      causes: listed.map(({ reason, message, field }) =>
        Object.fromEntries(
          Object.entries({ reason, message, field }).filter(([, one]) => typeof one === "string" && one !== ""),
        ),
      ),
    }),
    ...(typeof retryAfterSeconds === "number" && retryAfterSeconds !== 0 && { retryAfterSeconds }),
  };
};
