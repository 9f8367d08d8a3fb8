/** Random values that depend only on a seed. */
export interface Random {
  /** Returns a number from 0 to below 1. */
  next(): number;
  below(end: number): number;
  chance(probability: number): boolean;
  pick<T>(from: readonly T[]): T;
  /** Returns some of the values in their order; at least one if `least` is 1. */
  some<T>(from: readonly T[], least?: number): T[];
}

/** The generator is Mulberry32. */
export const createRandom = (seed: number): Random => {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const below = (end: number) => Math.floor(next() * end);
  const pick = <T>(from: readonly T[]): T => {
    if (from.length === 0) throw new Error("there is nothing to draw from");
    // The index is in range.
    return from[below(from.length)] as T;
  };
  const some = <T>(from: readonly T[], least = 0): T[] => {
    const chosen = from.filter(() => next() < 0.4);
    return chosen.length >= least ? chosen : [pick(from)];
  };
  return { next, below, chance: (probability) => next() < probability, pick, some };
};
