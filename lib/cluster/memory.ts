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
export class Memory {
  readonly #entries = new Map<string, Entry>();
  readonly #limits: { entries: number; bytes: number };
  #bytes = 0;

  constructor(limits = { entries: 2000, bytes: 16 * 1024 * 1024 }) {
    this.#limits = limits;
  }

  /** An answer that was asked for at `earliest` or later, from before or from `search`. */
  recall(key: string, earliest: number, search: () => Promise<Found>): Recollection {
    const known = this.#entries.get(key);
    if (known && known.since >= earliest) {
      this.#entries.delete(key);
      this.#entries.set(key, known);
      return told(known);
    }
    const entry: Entry = { since: Date.now(), bytes: 0, search: search() };
    this.#forget(key);
    this.#entries.set(key, entry);
    entry.search.then(
      (found) => {
        entry.found = found;
        this.#keep(key, entry, found.bytes);
      },
      () => this.#keep(key, entry, undefined),
    );
    return told(entry);
  }

  /** Another may be in its place by now. */
  #keep(key: string, entry: Entry, bytes: number | undefined) {
    if (this.#entries.get(key) !== entry) return;
    if (bytes === undefined) return this.#forget(key);
    entry.bytes = bytes;
    this.#bytes += bytes;
    for (const oldest of this.#entries.keys()) {
      if (this.#bytes <= this.#limits.bytes && this.#entries.size <= this.#limits.entries) break;
      this.#forget(oldest);
    }
  }

  #forget(key: string) {
    this.#bytes -= this.#entries.get(key)?.bytes ?? 0;
    this.#entries.delete(key);
  }
}

const told = ({ since, search, found }: Entry): Recollection =>
  found ? { since, content: found.content } : { since, pending: search.then(({ content }) => content) };
