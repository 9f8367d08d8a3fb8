import { createHash } from "node:crypto";
import { freezeDeep } from "./json.ts";

/** State that survives a review: small JSON values by key. */
export interface Ledger {
  /**
   * Replaces the values under some keys of the ledger, all or none, with what `change` returns for them in the same
   * order, and resolves to that; undefined deletes a value. A value that `change` returns as it got it is not written.
   * No other change comes in between, so `change` may be called more than once, with values that weren't all there at
   * one moment, too; the last call counts. Its argument can't be edited.
   * A value is deleted `seconds` after its last change; without them, it stays.
   */
  change<T>(
    keys: readonly string[],
    change: (kept: readonly (T | undefined)[]) => readonly (T | undefined)[],
    seconds?: number,
  ): Promise<readonly (T | undefined)[]>;
}

interface LedgerEntry {
  value: unknown;
  until: number;
}

/** The most values that a ledger in memory keeps; beyond it, the values that were changed the longest ago are deleted. */
const mostEntries = 100_000;

export const createMemoryLedger = (most = mostEntries, readTime = Date.now): Ledger => {
  /** The least recently changed entries come first. */
  const entries = new Map<string, LedgerEntry>();
  return {
    change: async <T>(
      keys: readonly string[],
      change: (kept: readonly (T | undefined)[]) => readonly (T | undefined)[],
      seconds = Number.POSITIVE_INFINITY,
    ) => {
      const makeValues = checkChange(keys, change);
      const now = readTime();
      const kept = keys.map((key) => {
        const entry = entries.get(key);
        // The cast to T is safe: this key's values only come from `change` functions, which return a T.
        return entry && now < entry.until ? (entry.value as T) : undefined;
      });
      const newValues = makeValues(kept);
      for (const [index, key] of keys.entries()) {
        const value = newValues[index];
        if (value === kept[index]) continue;
        entries.delete(key);
        if (value !== undefined) entries.set(key, { value: freezeDeep(value), until: now + seconds * 1000 });
      }
      for (const [oldest, { until }] of entries) {
        if (entries.size <= most && now < until) break;
        entries.delete(oldest);
      }
      return newValues;
    },
  };
};

/** Returns a change that throws unless it makes one value for each key. Throws if a key is named twice. */
export const checkChange = <T>(
  keys: readonly string[],
  change: (kept: readonly (T | undefined)[]) => readonly (T | undefined)[],
): typeof change => {
  if (new Set(keys).size < keys.length) throw new Error("a change of the ledger names a key twice");
  return (kept) => {
    const newValues = change(kept);
    if (newValues.length !== keys.length)
      throw new Error(`a change of the ledger must return ${keys.length} values, not ${newValues.length}`);
    return newValues;
  };
};

/**
 * The most characters of a ledger's key. A longer key is hashed: keys from requests may be longer than a database
 * table accepts. So is a key with half a character, which has no encoding, and a key that looks hashed.
 */
const longestKey = 256;
const shortenKey = (key: string) =>
  key.length > longestKey || !key.isWellFormed() || key.startsWith("#")
    ? `#${createHash("sha256").update(JSON.stringify(key)).digest("base64url")}`
    : key;

/** Returns a ledger whose keys begin with a rule's name and a cluster's, so that several can share one. */
export const openRuleLedger = (ledger: Ledger, rule: string, cluster = ""): Ledger => ({
  change: (keys, change, seconds) =>
    ledger.change(
      keys.map((key) => `${rule}/${cluster}/${shortenKey(key)}`),
      change,
      seconds,
    ),
});
