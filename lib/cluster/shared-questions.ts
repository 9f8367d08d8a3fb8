import type { Found, Memory, Recollection } from "./answer-cache.ts";
import { before } from "./https-request.ts";

/** Milliseconds to wait for another review's request before sending a new one. */
const patience = 1000;
/** Milliseconds more for our own request: it ends by itself, and its error says more than a timeout. */
const grace = 50;

/** An answer, the time from which it holds, and whether this call asked for it. */
export interface Told {
  since: number;
  content: unknown;
  isOurs: boolean;
}

/**
 * Returns an answer from `earliest` or later: a kept one, a pending one, or a new one; until `deadline`. If another
 * review's request fails or takes long, it asks again: that review may have had less time.
 */
export const shared = async (
  memory: Memory,
  key: string,
  earliest: number,
  deadline: number,
  search: () => Promise<Found>,
): Promise<Told> => {
  let isOurs = false;
  const ask = (earliest: number) =>
    memory.recall(key, earliest, () => {
      isOurs = true;
      return search();
    });
  const told = async (found: Recollection, until: number): Promise<Told> => {
    const content = "pending" in found ? await before(until + (isOurs ? grace : 0), found.pending) : found.content;
    return { since: found.since, content, isOurs };
  };
  const found = ask(earliest);
  if (isOurs) return told(found, deadline);
  return told(found, Math.min(deadline, found.since + patience)).catch((error) => {
    if (Date.now() >= deadline) throw error;
    return told(ask(found.since + 1), deadline);
  });
};
