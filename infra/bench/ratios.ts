/** How a measurement compares with its floor: the median over all pairs, and between what most of them lie. */
export interface Ratio {
  median: number;
  p10: number;
  p90: number;
}

export const ratioOf = (ratios: readonly number[]): Ratio => {
  const [p10 = Number.NaN, median = Number.NaN, p90 = Number.NaN] = quantiles(ratios, [0.1, 0.5, 0.9]);
  return { median, p10, p90 };
};

/** The values below which these shares of all lie. */
export const quantiles = (values: readonly number[], shares: readonly number[]): number[] => {
  const sorted = values.toSorted((one, other) => one - other);
  return shares.map((share) => sorted[Math.round((sorted.length - 1) * share)] ?? Number.NaN);
};

/** What the second takes over what the first does, once a round; a fifth more rounds come before, and warm up. */
export const inTurn = async (
  rounds: number,
  one: () => Promise<number>,
  other: () => Promise<number>,
): Promise<number[]> => {
  const ratios: number[] = [];
  for (let round = -Math.ceil(rounds / 5); round < rounds; round++) {
    // Who goes first is swapped from round to round.
    const [first, second] = round % 2 === 0 ? [one, other] : [other, one];
    const [before, after] = [await first(), await second()];
    if (round >= 0) ratios.push(first === one ? after / before : before / after);
  }
  return ratios;
};
