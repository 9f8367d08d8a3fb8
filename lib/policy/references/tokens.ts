import { buildBasicAuthorization, isHeaderSafeToken } from "../../cluster/credentials.ts";
import { isMap } from "../../json.ts";
import { type HttpsRequest, type HttpsResponse, parseAnswer } from "../../needs.ts";
import type { HttpReferenceAuth } from "../types.ts";

/** A token and when it expires, in milliseconds since 1970; undefined if the service doesn't say when. */
interface ReceivedToken {
  token: string;
  expireAt: number | undefined;
}

export const buildBasicAuthHeaders = ({ username = "", password = "" }: HttpReferenceAuth): Record<string, string> =>
  username || password ? { authorization: buildBasicAuthorization(username, password) } : {};

export const parseTokenResponse = (answer: HttpsResponse): ReceivedToken | undefined => {
  const content = answer.status >= 200 && answer.status < 300 ? parseAnswer(answer) : undefined;
  if (!isMap(content)) return undefined;
  const { token, expireAt } = content;
  if (typeof token !== "string" || !isHeaderSafeToken(token)) return undefined;
  return { token, expireAt: typeof expireAt === "number" && expireAt > 0 ? expireAt : undefined };
};

/** When each response of a token service was first read: the start of the token's life. */
const firstRead = new WeakMap<HttpsResponse, number>();
const defaultLifeMilliseconds = 5 * 60_000;
/** The least time between the end of caching and the end of a token's life. */
const minimumMarginMilliseconds = 5000;

/**
 * Returns a function that returns for how many seconds to cache a token service's answer: the token's life minus a
 * margin (a tenth of the life, but at least 5 s), or 0 for a token that was refused. The HTTP client calls the function
 * at each use of a cached answer, so `firstRead` keeps the time of the first call, from which the life is counted.
 */
export const computeTokenCacheSeconds =
  ({ expireDuration = "" }: HttpReferenceAuth, refused: string | undefined): NonNullable<HttpsRequest["keep"]> =>
  (answer) => {
    const start = firstRead.get(answer) ?? Date.now();
    firstRead.set(answer, start);
    const found = parseTokenResponse(answer);
    if (found === undefined || found.token === refused) return 0;
    const life =
      found.expireAt === undefined
        ? (parseGoDurationMilliseconds(expireDuration) ?? defaultLifeMilliseconds)
        : found.expireAt - start;
    return Math.max(0, life - Math.max(life / 10, minimumMarginMilliseconds)) / 1000;
  };

/** The milliseconds of each unit of Go's durations. */
const units: Record<string, number> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3,
  μs: 1e-3,
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
};

/** Parses a Go duration such as 1h30m to milliseconds; undefined if it is invalid. */
export const parseGoDurationMilliseconds = (text: string): number | undefined => {
  if (!/^\+?([\d.]+(ns|us|µs|μs|ms|s|m|h))+$/.test(text)) return undefined;
  const parts = text.matchAll(/([\d.]+)(\D+)/g);
  const sum = parts.reduce((sum, [, number, unit = ""]) => sum + Number(number) * (units[unit] ?? Number.NaN), 0);
  return Number.isFinite(sum) ? sum : undefined;
};
