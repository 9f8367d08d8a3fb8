/** Draws random values. The same seed gives the same values. */
export interface Random {
  /** Returns a number of at least 0 and below 1. */
  draw(): number;
  /** Returns an integer of at least 0 and below `end`. */
  drawBelow(end: number): number;
  /** Returns true with this probability. */
  decide(probability: number): boolean;
  pick<T>(from: readonly T[]): T;
  /** Returns some of the values, in their order; by default, the list may be empty. */
  pickSome<T>(from: readonly T[], options?: { atLeastOne?: boolean }): T[];
}

/** The algorithm is Mulberry32. */
export const createRandom = (seed: number): Random => {
  let state = seed >>> 0;
  const draw = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const drawBelow = (end: number) => Math.floor(draw() * end);
  const pick = <T>(from: readonly T[]): T => {
    if (from.length === 0) throw new Error("there is nothing to draw from");
    // The index is within the list.
    return from[drawBelow(from.length)] as T;
  };
  const pickSome = <T>(from: readonly T[], { atLeastOne = false } = {}): T[] => {
    const chosen = from.filter(() => draw() < 0.4);
    return atLeastOne && chosen.length === 0 ? [pick(from)] : chosen;
  };
  return { draw, drawBelow, decide: (probability) => draw() < probability, pick, pickSome };
};
