import { createHash } from "node:crypto";
import { freezeDeep } from "./json.ts";

/** State that is kept between reviews: small JSON values by key. */
export interface Ledger {
  /**
   * Changes the values of some keys in one transaction. `change` gets the stored values (frozen), and returns the new
   * values, both in the order of `keys`; undefined means no value. The promise resolves to the new values. A value that
   * `change` returns unedited is not written.
   * If another process changes a value meanwhile, `change` is called again, and only its last call counts. The values
   * of an earlier call may come from different moments. A value is deleted `seconds` after its last change. Without
   * `seconds`, it is kept.
   */
  change<T>(
    keys: readonly string[],
    change: (stored: readonly (T | undefined)[]) => readonly (T | undefined)[],
    seconds?: number,
  ): Promise<readonly (T | undefined)[]>;
}

/** A value in memory, and the time at which it is deleted, in milliseconds since 1970. */
interface LedgerEntry {
  value: unknown;
  until: number;
}

/** A ledger in memory with more values deletes those that were changed the longest ago. */
const memoryLedgerLimit = 100_000;

/** Returns a ledger in this process's memory, with at most `limit` values. */
export const createMemoryLedger = (limit = memoryLedgerLimit, readTime = Date.now): Ledger => {
  /** The least recently changed entries come first. */
  const entries = new Map<string, LedgerEntry>();
  return {
    change: async <T>(
      keys: readonly string[],
      change: (stored: readonly (T | undefined)[]) => readonly (T | undefined)[],
      seconds = Number.POSITIVE_INFINITY,
    ) => {
      const checkedChange = checkChange(keys, change);
      const now = readTime();
      const stored = keys.map((key) => {
        const entry = entries.get(key);
        // The cast to T is safe: this key's values only come from `change` functions, which return a T.
        return entry && now < entry.until ? (entry.value as T) : undefined;
      });
      const newValues = checkedChange(stored);
      for (const [index, key] of keys.entries()) {
        const value = newValues[index];
        if (value === stored[index]) continue;
        entries.delete(key);
        if (value !== undefined) entries.set(key, { value: freezeDeep(value), until: now + seconds * 1000 });
      }
      for (const [oldest, { until }] of entries) {
        if (entries.size <= limit && now < until) break;
        entries.delete(oldest);
      }
      return newValues;
    },
  };
};

/** Wraps `change` so that it throws unless it returns one value for each key. Throws if a key is twice in `keys`. */
export const checkChange = <T>(
  keys: readonly string[],
  change: (stored: readonly (T | undefined)[]) => readonly (T | undefined)[],
): typeof change => {
  if (new Set(keys).size < keys.length) throw new Error("a change of the ledger names a key twice");
  return (stored) => {
    const newValues = change(stored);
    if (newValues.length !== keys.length)
      throw new Error(`a change of the ledger must return ${keys.length} values, not ${newValues.length}`);
    return newValues;
  };
};

const maxKeyLength = 256;

/**
 * Hashes a key that a database table may not accept, because it is too long or contains half a surrogate pair. Also
 * hashes a key that begins with `#`, as hashes do.
 */
const shortenKey = (key: string) =>
  key.length > maxKeyLength || !key.isWellFormed() || key.startsWith("#")
    ? `#${createHash("sha256").update(JSON.stringify(key)).digest("base64url")}`
    : key;

/** Puts the names of a rule and a cluster before each key, so that several rules and clusters can share a ledger. */
export const openRuleLedger = (ledger: Ledger, rule: string, cluster = ""): Ledger => ({
  change: (keys, change, seconds) =>
    ledger.change(
      keys.map((key) => `${rule}/${cluster}/${shortenKey(key)}`),
      change,
      seconds,
    ),
});
