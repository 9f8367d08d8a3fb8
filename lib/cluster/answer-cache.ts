import { awaitUntil } from "./https-request.ts";

interface Entry {
  since: number;
  bytes: number;
  search: Promise<CacheableAnswer>;
  found?: CacheableAnswer;
}

/** A cached answer to a request sent at the time `since`, or the promise of one that is still pending. */
type CachedAnswer = { since: number } & ({ content: unknown } | { pending: Promise<unknown> });

/** The result of asking a server, and its size; a result without a size isn't cached. */
export interface CacheableAnswer {
  content: unknown;
  bytes: number | undefined;
}

/**
 * One Lambda environment's cache of answers, for all clusters; the least recently used go first. Equal questions
 * wait for one pending answer.
 */
export interface AnswerCache {
  /** Returns a cached answer that was asked for at `earliest` or later; calls `search` if there is none. */
  recall(key: string, earliest: number, search: () => Promise<CacheableAnswer>): CachedAnswer;
}

export const createAnswerCache = (limits = { entries: 2000, bytes: 16 * 1024 * 1024 }): AnswerCache => {
  const entries = new Map<string, Entry>();
  let held = 0;

  const forget = (key: string) => {
    held -= entries.get(key)?.bytes ?? 0;
    entries.delete(key);
  };
  const keep = (key: string, entry: Entry, bytes: number | undefined) => {
    // Another request for the same answer may have replaced this entry meanwhile.
    if (entries.get(key) !== entry) return;
    if (bytes === undefined) return forget(key);
    entry.bytes = bytes;
    held += bytes;
    for (const oldest of entries.keys()) {
      if (held <= limits.bytes && entries.size <= limits.entries) break;
      forget(oldest);
    }
  };

  return {
    recall(key, earliest, search) {
      const known = entries.get(key);
      if (known && known.since >= earliest) {
        entries.delete(key);
        entries.set(key, known);
        return toCachedAnswer(known);
      }
      const entry: Entry = { since: Date.now(), bytes: 0, search: search() };
      forget(key);
      entries.set(key, entry);
      entry.search.then(
        (found) => {
          entry.found = found;
          keep(key, entry, found.bytes);
        },
        () => keep(key, entry, undefined),
      );
      return toCachedAnswer(entry);
    },
  };
};

const toCachedAnswer = ({ since, search, found }: Entry): CachedAnswer =>
  found ? { since, content: found.content } : { since, pending: search.then(({ content }) => content) };

/** Milliseconds to wait for the answer to another review's equal request, before sending a new one. */
const patience = 1000;
/** Extra milliseconds for this review's own request: it ends by itself at the deadline, with a more exact error. */
const grace = 50;

/** A cached answer, the time since which it is valid, and whether this call asked for it. */
export interface CacheLookupResult {
  since: number;
  content: unknown;
  isOurs: boolean;
}

/**
 * Returns an answer from `earliest` or later: a kept one, a pending one, or a new one; until `deadline`. If another
 * review's request fails or takes long, this review asks again: that one may have had less time.
 */
export const askThroughSharedCache = async (
  memory: AnswerCache,
  key: string,
  earliest: number,
  deadline: number,
  search: () => Promise<CacheableAnswer>,
): Promise<CacheLookupResult> => {
  let isOurs = false;
  const ask = (earliest: number) =>
    memory.recall(key, earliest, () => {
      isOurs = true;
      return search();
    });
  const awaitAnswer = async (found: CachedAnswer, until: number): Promise<CacheLookupResult> => {
    const content = "pending" in found ? await awaitUntil(until + (isOurs ? grace : 0), found.pending) : found.content;
    return { since: found.since, content, isOurs };
  };
  const found = ask(earliest);
  if (isOurs) return awaitAnswer(found, deadline);
  return awaitAnswer(found, Math.min(deadline, found.since + patience)).catch((error) => {
    if (Date.now() >= deadline) throw error;
    return awaitAnswer(ask(found.since + 1), deadline);
  });
};
