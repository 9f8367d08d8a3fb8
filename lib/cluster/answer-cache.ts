import { awaitUntil } from "./https-request.ts";

/** A request, and its answer once there is one. Until then, `bytes`, the size of the answer, is 0. */
interface Entry {
  /** When the request was sent, in milliseconds since 1970. */
  sent: number;
  bytes: number;
  search: Promise<CacheableAnswer>;
  /** The answer, once `search` has resolved. */
  found?: CacheableAnswer;
}

/** A cached answer and when its request was sent, or the promise of an answer that is still pending. */
type CachedAnswer = { sent: number } & ({ content: unknown } | { pending: Promise<unknown> });

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
      if (existing && existing.sent >= earliest) {
        // The entry becomes the most recently used one, which is the last of the map.
        entries.delete(key);
        entries.set(key, existing);
        return toCachedAnswer(existing);
      }
      const entry: Entry = { sent: Date.now(), bytes: 0, search: search() };
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

const toCachedAnswer = ({ sent, search, found }: Entry): CachedAnswer =>
  found ? { sent, content: found.content } : { sent, pending: search.then(({ content }) => content) };

/** For how many milliseconds a review waits for the answer to another review's request, before it sends its own. */
const waitForOthersMilliseconds = 1000;
/**
 * A review that sent the request itself waits these milliseconds longer than its deadline. At the deadline, the request
 * ends with an error of its own, which says more than the timeout of the wait.
 */
const waitForOwnErrorMilliseconds = 50;

/** An answer, when its request was sent, and whether this call sent the request. */
export interface CacheLookupResult {
  sent: number;
  content: unknown;
  isOurs: boolean;
}

/**
 * Returns the answer to a request that was sent at `earliest` or later: a cached answer, the answer to another review's
 * pending request, or that to a new request. Waits for it until `deadline`. If the other review's request fails or
 * takes long, sends a new request, because the other review may have had less time.
 */
export const askThroughSharedCache = async (
  cache: AnswerCache,
  key: string,
  earliest: number,
  deadline: number,
  search: () => Promise<CacheableAnswer>,
): Promise<CacheLookupResult> => {
  let isOurs = false;
  const recall = (oldest: number) =>
    cache.recall(key, oldest, () => {
      isOurs = true;
      return search();
    });
  const awaitAnswer = async (found: CachedAnswer, until: number): Promise<CacheLookupResult> => {
    // At the deadline, our own request ends with an error that says more than a timeout here: so it is awaited longer.
    const end = isOurs ? until + waitForOwnErrorMilliseconds : until;
    const content = "pending" in found ? await awaitUntil(end, found.pending) : found.content;
    return { sent: found.sent, content, isOurs };
  };
  const found = recall(earliest);
  if (isOurs) return awaitAnswer(found, deadline);
  return awaitAnswer(found, Math.min(deadline, found.sent + waitForOthersMilliseconds)).catch((error) => {
    if (Date.now() >= deadline) throw error;
    // Only an answer to a later request counts now. If no review has sent one, `recall` does, and sets `isOurs`.
    return awaitAnswer(recall(found.sent + 1), deadline);
  });
};
