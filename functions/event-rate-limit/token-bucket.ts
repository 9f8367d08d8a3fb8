import type { Event, EventSource, ObjectReference } from "postern/kubernetes/core/v1";
import type { AdmissionRequest } from "postern/review";

export const eventLimitTypes = ["Server", "Namespace", "User", "SourceAndObject"] as const;

/** A rate limit for events, with a token bucket for the server, or for each namespace, user or source. */
export interface EventLimit {
  type: (typeof eventLimitTypes)[number];
  /** The events per second that refill the bucket. */
  qps: number;
  burst: number;
  cacheSize?: number;
}

export interface TokenBucket {
  tokens: number;
  /** Milliseconds since 1970. */
  since: number;
}

/** Returns a token bucket without the token that a request takes; undefined if it has none. A new bucket is full. */
export const takeToken = (
  { qps, burst }: EventLimit,
  kept: TokenBucket | undefined,
  now: number,
): TokenBucket | undefined => {
  const { tokens, since } = kept ?? { tokens: burst, since: now };
  // The clocks of two functions may differ: a time before `since` adds no tokens to the bucket.
  const filled = Math.min(burst, tokens + (Math.max(0, now - since) / 1000) * qps);
  return filled >= 1 ? { tokens: filled - 1, since: Math.max(now, since) } : undefined;
};

type AnyEvent = Event & { deprecatedSource?: EventSource; regarding?: ObjectReference };

/** Returns the key of the token bucket that an event counts against, under a limit. */
export const getTokenBucketKey = (
  { type }: EventLimit,
  event: AnyEvent,
  { namespace = "", userInfo }: AdmissionRequest,
): string => {
  if (type === "Server") return "";
  if (type === "Namespace") return namespace;
  if (type === "User") return userInfo.username ?? "";
  const { component, host } = event.source ?? event.deprecatedSource ?? {};
  const object = event.involvedObject ?? event.regarding ?? {};
  const parts = [component, host, object.kind, object.namespace, object.name, object.uid, object.apiVersion];
  return parts.filter((part) => typeof part === "string").join("");
};
