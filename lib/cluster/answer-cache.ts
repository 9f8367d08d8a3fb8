/** What was found out, and from when on that was so. */
interface Entry {
  since: number;
  bytes: number;
  search: Promise<Found>;
  /** When it is over. */
  found?: Found;
}

/** What there is to a question: an answer that was asked for at `since`, or one that is being waited for. */
export type Recollection = { since: number } & ({ content: unknown } | { pending: Promise<unknown> });

/** What a search came to; without a size it is not worth keeping. */
export interface Found {
  content: unknown;
  bytes: number | undefined;
}

/**
 * What one environment remembers, of all clusters, within bounds: what was used least recently goes first. Who asks for
 * what somebody is asking for already waits for the same answer.
 */
export interface Memory {
  /** An answer that was asked for at `earliest` or later, from before or from `search`. */
  recall(key: string, earliest: number, search: () => Promise<Found>): Recollection;
}

export const memoryOf = (limits = { entries: 2000, bytes: 16 * 1024 * 1024 }): Memory => {
  const entries = new Map<string, Entry>();
  let held = 0;

  const forget = (key: string) => {
    held -= entries.get(key)?.bytes ?? 0;
    entries.delete(key);
  };
  const keep = (key: string, entry: Entry, bytes: number | undefined) => {
    // Another may be in its place by now.
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
        return told(known);
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
      return told(entry);
    },
  };
};

const told = ({ since, search, found }: Entry): Recollection =>
  found ? { since, content: found.content } : { since, pending: search.then(({ content }) => content) };
