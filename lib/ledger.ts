import { createHash } from "node:crypto";
import { freezeDeep } from "./json.ts";

/** How long the ledger keeps a value: for a time, or as one of the latest of its shelf. */
export interface LedgerTerms {
  /** Seconds from the last change until the value is dropped; undefined keeps it. */
  seconds?: number;
  /** The shelf on which the value is: a named part of the ledger that keeps only the `most` last changed values. */
  shelf?: { name: string; most: number };
}

/** State that survives a review: small JSON values by key. */
export interface Ledger {
  /**
   * Replaces the value under a key of the ledger with what `change` returns, and resolves to that; undefined deletes
   * the value. No other change comes in
   * between, so `change` may be called more than once. Its argument can't be edited.
   */
  change<T>(key: string, change: (kept: T | undefined) => T | undefined, terms?: LedgerTerms): Promise<T | undefined>;
}

interface LedgerEntry {
  value: unknown;
  until: number;
  shelf: Set<string>;
}

const common = { name: "", most: 10_000 };

export const createMemoryLedger = (): Ledger => {
  const all = new Map<string, LedgerEntry>();
  /** The keys of each shelf (a group of entries with a maximum size), the least recently changed first. */
  const shelves = new Map<string, Set<string>>();
  const forget = (key: string) => {
    all.get(key)?.shelf.delete(key);
    all.delete(key);
  };
  return {
    change: async <T>(key: string, change: (kept: T | undefined) => T | undefined, terms: LedgerTerms = {}) => {
      const { seconds = Number.POSITIVE_INFINITY, shelf: { name, most } = common } = terms;
      const known = all.get(key);
      const now = Date.now();
      // The cast to T is safe: this key's values only come from `change` functions, which return a T.
      const value = change(known && now < known.until ? (known.value as T) : undefined);
      forget(key);
      if (value === undefined) return undefined;
      const shelf = shelves.get(name) ?? new Set<string>();
      shelves.set(name, shelf.add(key));
      all.set(key, { value: freezeDeep(value), until: now + seconds * 1000, shelf });
      for (const oldest of shelf) {
        if (shelf.size <= most && now < (all.get(oldest)?.until ?? 0)) break;
        forget(oldest);
      }
      return value;
    },
  };
};

/**
 * The most characters of a ledger's key. A longer key is hashed: keys from requests may be longer than a database
 * table accepts.
 */
const longestKey = 256;
const shortenKey = (key: string) =>
  key.length > longestKey ? createHash("sha256").update(key).digest("base64url") : key;

/** Returns a ledger whose keys and shelves have a prefix, so that several rules can share one. */
export const prefixLedger = (ledger: Ledger, place: string): Ledger => ({
  change: (key, change, { shelf, ...terms } = {}) =>
    ledger.change(`${place} ${shortenKey(key)}`, change, {
      ...terms,
      shelf: { ...(shelf ?? common), name: `${place} ${(shelf ?? common).name}` },
    }),
});
