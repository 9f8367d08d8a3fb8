import { awaitUntil } from "./https-request.ts";

/** A request, and its answer once there is one. */
interface Entry {
  /** When the request was sent, in milliseconds since 1970. */
  since: number;
  bytes: number;
  search: Promise<CacheableAnswer>;
  /** The answer, once `search` has resolved. */
  found?: CacheableAnswer;
}

/** A cached answer to a request sent at the time `since`, or the promise of one that is still pending. */
type CachedAnswer = { since: number } & ({ content: unknown } | { pending: Promise<unknown> });

/** A server's answer and its size. An answer without a size isn't cached. */
export interface CacheableAnswer {
  content: unknown;
  bytes: number | undefined;
}

/**
 * A cache of answers for all clusters, in the memory of one process. If it is full, the least recently used answers are
 * deleted. If an equal request is pending, its answer is used.
 */
export interface AnswerCache {
  /** Returns a cached answer to a request that was sent at `earliest` or later. Calls `search` if there is none. */
  recall(key: string, earliest: number, search: () => Promise<CacheableAnswer>): CachedAnswer;
}

/** Keeps answers up to a number of entries and bytes. The least recently used ones go first. */
export const createAnswerCache = (limits = { entries: 2000, bytes: 16 * 1024 * 1024 }): AnswerCache => {
  const entries = new Map<string, Entry>();
  let totalBytes = 0;

  const deleteEntry = (key: string) => {
    totalBytes -= entries.get(key)?.bytes ?? 0;
    entries.delete(key);
  };
  /** Keeps the entry of a request that has ended, or deletes it if its answer isn't to be cached. */
  const settleEntry = (key: string, entry: Entry, bytes: number | undefined) => {
    // A later equal request may have replaced this entry meanwhile.
    if (entries.get(key) !== entry) return;
    if (bytes === undefined) return deleteEntry(key);
    entry.bytes = bytes;
    totalBytes += bytes;
    for (const leastRecentlyUsed of entries.keys()) {
      if (totalBytes <= limits.bytes && entries.size <= limits.entries) break;
      deleteEntry(leastRecentlyUsed);
    }
  };

  return {
    recall(key, earliest, search) {
      const existing = entries.get(key);
      if (existing && existing.since >= earliest) {
        // The entry becomes the most recently used one, which is the last of the map.
        entries.delete(key);
        entries.set(key, existing);
        return toCachedAnswer(existing);
      }
      const entry: Entry = { since: Date.now(), bytes: 0, search: search() };
      deleteEntry(key);
      entries.set(key, entry);
      entry.search.then(
        (found) => {
          entry.found = found;
          settleEntry(key, entry, found.bytes);
        },
        () => settleEntry(key, entry, undefined),
      );
      return toCachedAnswer(entry);
    },
  };
};

const toCachedAnswer = ({ since, search, found }: Entry): CachedAnswer =>
  found ? { since, content: found.content } : { since, pending: search.then(({ content }) => content) };

/** For how many milliseconds a review waits for the answer to another review's request, before it sends its own. */
const patience = 1000;
/** The milliseconds after its deadline in which a review still waits for its own request's error: it is more exact. */
const ownErrorMilliseconds = 50;

/** An answer, when its request was sent, and whether this call sent the request. */
export interface CacheLookupResult {
  since: number;
  content: unknown;
  isOurs: boolean;
}

/**
 * Returns the answer to a request that was sent at `earliest` or later: a cached answer, the answer to another review's
 * pending request, or that to a new request. Waits for it until `deadline`. If the other review's request fails or
 * takes long, sends a new request, because the other review may have had less time.
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
    const end = isOurs ? until + ownErrorMilliseconds : until;
    const content = "pending" in found ? await awaitUntil(end, found.pending) : found.content;
    return { since: found.since, content, isOurs };
  };
  const found = ask(earliest);
  if (isOurs) return awaitAnswer(found, deadline);
  return awaitAnswer(found, Math.min(deadline, found.since + patience)).catch((error) => {
    if (Date.now() >= deadline) throw error;
    return awaitAnswer(ask(found.since + 1), deadline);
  });
};
