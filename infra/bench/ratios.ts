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
