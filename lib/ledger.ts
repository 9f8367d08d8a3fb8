import { createHash } from "node:crypto";
import { frozen } from "./json.ts";

/** For how long something is kept, and among how many. */
export interface Terms {
  /** Forgotten when so many seconds have passed since it was last changed; never, if not said. */
  seconds?: number;
  /** Of what stands on one shelf, only so many stay: what was changed least recently goes first. */
  shelf?: { name: string; most: number };
}

/** What survives from one review to the next, by key: small values, as JSON has them. */
export interface Ledger {
  /**
   * Keeps what `change` makes of what is kept, and resolves to it. Nobody else's change comes in between, so `change` may
   * be called more than once; what it is given can't be edited. Nothing is kept of undefined.
   */
  change<T>(key: string, change: (kept: T | undefined) => T | undefined, terms?: Terms): Promise<T | undefined>;
}

interface Kept {
  value: unknown;
  until: number;
  shelf: Set<string>;
}

const common = { name: "", most: 10_000 };

/** A ledger in this process' memory, which ends with it. */
export const memoryLedger = (): Ledger => {
  const all = new Map<string, Kept>();
  /** By shelf, its keys, the least recently changed first. */
  const shelves = new Map<string, Set<string>>();
  const forget = (key: string) => {
    all.get(key)?.shelf.delete(key);
    all.delete(key);
  };
  return {
    change: async <T>(key: string, change: (kept: T | undefined) => T | undefined, terms: Terms = {}) => {
      const { seconds = Number.POSITIVE_INFINITY, shelf: { name, most } = common } = terms;
      const known = all.get(key);
      const now = Date.now();
      // Under this key there is what its own changes made.
      const value = change(known && now < known.until ? (known.value as T) : undefined);
      forget(key);
      if (value === undefined) return undefined;
      const shelf = shelves.get(name) ?? new Set<string>();
      shelves.set(name, shelf.add(key));
      all.set(key, { value: frozen(value), until: now + seconds * 1000, shelf });
      for (const oldest of shelf) {
        if (shelf.size <= most && now < (all.get(oldest)?.until ?? 0)) break;
        forget(oldest);
      }
      return value;
    },
  };
};

/** What somebody chose may be as long as a review; a table takes no such key. */
const longestKey = 256;
const short = (key: string) => (key.length > longestKey ? createHash("sha256").update(key).digest("base64url") : key);

/** The same ledger, where others use the same keys. */
export const within = (ledger: Ledger, place: string): Ledger => ({
  change: (key, change, { shelf, ...terms } = {}) =>
    ledger.change(`${place} ${short(key)}`, change, {
      ...terms,
      shelf: { ...(shelf ?? common), name: `${place} ${(shelf ?? common).name}` },
    }),
});
