import type { Found, Memory, Recollection } from "./answer-cache.ts";
import { before } from "./https-request.ts";

/** How long to wait for what somebody else asks, in milliseconds, before asking it oneself. */
const patience = 1000;
/** What we ask ourselves ends by itself, and may then say more than that the time is up. */
const grace = 50;

/** An answer, from when on it holds, and whether it was asked for just now, by us. */
export interface Told {
  since: number;
  content: unknown;
  isOurs: boolean;
}

/**
 * What is remembered of `earliest` or later, or what somebody asks already, or what we ask now; until `deadline`. Where
 * another's question fails or stays away, and there is time, we ask it ourselves: that one may have had less.
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
