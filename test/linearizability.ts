import { createRandom } from "../infra/testing/random.ts";

// A checker for histories of a ledger: is there an order of its operations, one after the other, that explains what
// each of them has read? It is the search of Wing and Gong with the memory of Lowe: it puts one operation after the
// other into the order, and never continues twice from the same operations and values.

/** One operation on some keys. Absent values are undefined. */
export interface Operation {
  keys: readonly string[];
  /** The values that it read, and those that it left, in the order of the keys. */
  read: readonly unknown[];
  wrote: readonly unknown[];
  /** When the client called, and when it got the result; no end if it is unknown whether the operation was done. */
  start: number;
  end?: number;
}

/** Reports whether there is an order that explains a history. Every key is absent at the start. */
export const isLinearizable = (history: readonly Operation[]): boolean => splitByKeys(history).every(hasOrder);

/** Splits a history into parts that share no key: each part can be ordered alone. */
const splitByKeys = (history: readonly Operation[]): Operation[][] => {
  const parts = new Map<string, Set<string>>();
  for (const { keys } of history) {
    const joined = new Set(keys.flatMap((key) => [...(parts.get(key) ?? [key])]));
    for (const key of joined) parts.set(key, joined);
  }
  return [...Map.groupBy(history, ({ keys: [key = ""] }) => parts.get(key)).values()];
};

/**
 * Searches with backtracking: places an operation, and if the search gets stuck, takes it back and tries another. Ends
 * when all operations with an `end` are placed. One without an `end` was perhaps never done, so it may stay unplaced.
 */
const hasOrder = (history: readonly Operation[]): boolean => {
  const operations = history.toSorted((left, right) => left.start - right.start);
  const random = createRandom(1);
  // The hash of the placed operations is the XOR of their random numbers: the same in whichever order they were placed.
  const hashes = operations.map(() => [random.drawBelow(2 ** 32), random.drawBelow(2 ** 32)] as const);
  const isPlaced = operations.map(() => false);
  const values = new Map<string, unknown>();
  let hash: readonly [number, number] = [0, 0];
  let unplacedWithEnd = operations.filter(({ end }) => end !== undefined).length;

  /** Places an operation or takes it back. Its keys get `newValues`: what it wrote, or what they had before it. */
  const move = (index: number, newValues: readonly unknown[]): void => {
    const { keys, end } = operations[index] as Operation;
    const [left = 0, right = 0] = hashes[index] ?? [];
    hash = [hash[0] ^ left, hash[1] ^ right];
    isPlaced[index] = !isPlaced[index];
    if (end !== undefined) unplacedWithEnd += isPlaced[index] ? -1 : 1;
    for (const [place, key] of keys.entries()) values.set(key, newValues[place]);
  };

  /**
   * Returns the operations that may come next in the order. They aren't in it yet, began before the earliest end of all
   * operations that aren't in it yet, and have read the present values.
   */
  const listNext = (): number[] => {
    const next: number[] = [];
    let earliestEnd = Number.POSITIVE_INFINITY;
    for (const [index, operation] of operations.entries()) {
      if (isPlaced[index]) continue;
      const { keys, read, wrote, start, end } = operation;
      if (start > earliestEnd) break;
      earliestEnd = Math.min(earliestEnd, end ?? earliestEnd);
      if (!keys.every((key, place) => values.get(key) === read[place])) continue;
      // An operation that changes nothing never prevents another one, so no alternative needs to be tried.
      if (end !== undefined && wrote.every((value, place) => value === read[place])) return [index];
      next.push(index);
    }
    return next;
  };

  const tried = new Set<string>();
  const order: { index: number; old: unknown[]; alternatives: number[] }[] = [];
  let next = listNext();
  while (unplacedWithEnd > 0) {
    const index = next.pop();
    if (index === undefined) {
      const last = order.pop();
      if (!last) return false;
      move(last.index, last.old);
      next = last.alternatives;
      continue;
    }
    const { keys, wrote } = operations[index] as Operation;
    const old = keys.map((key) => values.get(key));
    move(index, wrote);
    const state = JSON.stringify([hash, ...values]);
    if (tried.has(state)) {
      move(index, old);
      continue;
    }
    tried.add(state);
    order.push({ index, old, alternatives: next });
    next = listNext();
  }
  return true;
};
