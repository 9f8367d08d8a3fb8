/** How a measurement compares with its floor: the median over all pairs, and between what most of them lie. */
export interface Ratio {
  median: number;
  p10: number;
  p90: number;
}

export const ratioOf = (ratios: readonly number[]): Ratio => {
  const sorted = ratios.toSorted((one, other) => one - other);
  const at = (share: number) => sorted[Math.round((sorted.length - 1) * share)] ?? Number.NaN;
  return { median: at(0.5), p10: at(0.1), p90: at(0.9) };
};
