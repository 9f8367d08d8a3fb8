import type { Event, EventSource, ObjectReference } from "postern/kubernetes/core/v1";
import type { Ledger } from "postern/ledger";
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

interface TokenBucket {
  tokens: number;
  /** When the bucket had this number of tokens, in milliseconds since 1970. */
  since: number;
}

/** The tokens of a bucket that one process has taken, and the time before which the process takes no more. */
interface Reserve {
  tokens: number;
  /** Before this time, in milliseconds since 1970, the bucket has too few tokens. */
  emptyUntil: number;
}

/**
 * How many times a second a process may take tokens (a share) from a bucket that refills with `qps`. DynamoDB allows
 * about 1,000 writes of an item a second, including writes that fail because another process changed the bucket first.
 */
const sharesPerSecond = 50;

/** Returns how many tokens a process takes from a bucket at once, so that not every event writes into the ledger. */
export const getShare = ({ qps, burst }: Pick<EventLimit, "qps" | "burst">): number =>
  Math.min(burst, Math.max(1, Math.floor(qps / sharesPerSecond)));

/**
 * Takes a token from a bucket; returns false if there is none. All processes share `buckets`; `reserves` belongs to
 * this process. The process takes a share of several tokens from the bucket, uses one, and keeps the others in its
 * reserve. It takes the next share only if its reserve is empty, and only after enough time for the refill.
 */
export const takeToken = async (
  limit: EventLimit,
  key: string,
  now: number,
  { buckets, reserves }: { buckets: Ledger; reserves: Ledger },
): Promise<boolean> => {
  // A bucket is stored only until it is full again, because a new bucket is full, too.
  const seconds = Math.ceil(limit.burst / limit.qps) + 1;
  const reserveKey = `reserve ${key}`;
  // This stays undefined if the process must ask the shared bucket.
  let isGiven: boolean | undefined;
  await reserves.change<Reserve>(
    [reserveKey],
    ([kept]) => {
      if (!kept || (kept.tokens === 0 && now >= kept.emptyUntil)) return [kept];
      isGiven = kept.tokens > 0;
      return [isGiven ? { ...kept, tokens: kept.tokens - 1 } : kept];
    },
    seconds,
  );
  if (isGiven !== undefined) return isGiven;

  const share = getShare(limit);
  let emptyUntil = 0;
  await buckets.change<TokenBucket>(
    [key],
    ([kept]) => {
      const { tokens, since } = fillBucket(limit, kept, now);
      isGiven = tokens >= share;
      emptyUntil = isGiven ? 0 : since + ((share - tokens) / limit.qps) * 1000;
      return [isGiven ? { tokens: tokens - share, since } : kept];
    },
    seconds,
  );
  const added = isGiven ? share - 1 : 0;
  if (added > 0 || !isGiven)
    await reserves.change<Reserve>(
      [reserveKey],
      ([kept]) => [{ tokens: (kept?.tokens ?? 0) + added, emptyUntil }],
      seconds,
    );
  return isGiven === true;
};

/** Adds the tokens that came since the last change. A time before `since` adds none, because clocks may differ. */
const fillBucket = ({ qps, burst }: EventLimit, kept: TokenBucket | undefined, now: number): TokenBucket => {
  const { tokens, since } = kept ?? { tokens: burst, since: now };
  return { tokens: Math.min(burst, tokens + (Math.max(0, now - since) / 1000) * qps), since: Math.max(now, since) };
};

type AnyEvent = Event & { deprecatedSource?: EventSource; regarding?: ObjectReference };

/** Returns the key of the bucket from which an event takes a token, such as its namespace for the type Namespace. */
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
