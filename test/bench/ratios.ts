/** Ratios of measured times to the times of a baseline: the median, and the 10th and 90th percentiles. */
export interface RatioSummary {
  median: number;
  p10: number;
  p90: number;
}

/** A measured time, divided by the time of a baseline such as an empty handler. */
export interface BenchResult {
  what: string;
  ratio: RatioSummary;
  /** The largest allowed median of `ratio`, if there is a limit. */
  limit?: number;
  /** Parts of the measured time: the ratio to the same part of the baseline's time, and the median of the part. */
  parts?: Record<string, { ratio: RatioSummary; milliseconds: number }>;
  /** The size of the measured bundle, and its largest allowed size. */
  kilobytes?: { bundle: number; limit: number };
}

/** Returns the median and the 10th and 90th percentiles of ratios. */
export const summarizeRatios = (ratios: readonly number[]): RatioSummary => {
  const [p10 = Number.NaN, median = Number.NaN, p90 = Number.NaN] = computeQuantiles(ratios, [0.1, 0.5, 0.9]);
  return { median, p10, p90 };
};

/** Returns a quantile for each fraction. For instance, the fraction 0.9 gives the 90th percentile. */
export const computeQuantiles = (values: readonly number[], fractions: readonly number[]): number[] => {
  const sorted = values.toSorted((one, other) => one - other);
  return fractions.map((fraction) => sorted[Math.round((sorted.length - 1) * fraction)] ?? Number.NaN);
};

/** Returns a quantile of weighted values for each fraction. The weights may have any sum. */
export const computeWeightedQuantiles = (
  values: readonly (readonly [value: number, weight: number])[],
  fractions: readonly number[],
): number[] => {
  const sorted = values.toSorted(([one], [other]) => one - other);
  const total = sorted.reduce((sum, [, weight]) => sum + weight, 0);
  return fractions.map((fraction) => {
    let remainingWeight = total * fraction;
    const found = sorted.find(([, weight]) => {
      remainingWeight -= weight;
      return remainingWeight <= 0;
    });
    return (found ?? sorted.at(-1))?.[0] ?? Number.NaN;
  });
};

/** The number of first rounds that only warm up. They aren't counted. */
interface WarmUp {
  warmUpRounds?: number;
}

/** Measures two functions in turn, and returns both values of each round that isn't a warm-up. */
export const measureInTurn = async <T, U>(
  rounds: number,
  one: () => Promise<T>,
  other: () => Promise<U>,
  { warmUpRounds = Math.ceil(rounds / 5) }: WarmUp = {},
): Promise<[T, U][]> => {
  const pairs: [T, U][] = [];
  for (let round = -warmUpRounds; round < rounds; round++) {
    const measured: { one?: T; other?: U } = {};
    const turns = [
      async () => {
        measured.one = await one();
      },
      async () => {
        measured.other = await other();
      },
    ];
    // The two measured functions swap their order in each round, so that neither always comes first.
    for (const turn of round % 2 === 0 ? turns : turns.reverse()) await turn();
    if (round >= 0) pairs.push([measured.one as T, measured.other as U]);
  }
  return pairs;
};

/** Measures baseline and subject in turn; returns the ratio of subject to baseline for each round. */
export const measureRatiosInTurn = async (
  rounds: number,
  measureBaseline: () => Promise<number>,
  measureSubject: () => Promise<number>,
  warmUp?: WarmUp,
): Promise<number[]> =>
  (await measureInTurn(rounds, measureBaseline, measureSubject, warmUp)).map(([first, second]) => second / first);

/** Runs `act` `times` times; returns the milliseconds of all runs together. */
export const measureMilliseconds = async (act: () => Promise<unknown>, times = 1): Promise<number> => {
  const start = performance.now();
  for (let time = 0; time < times; time++) await act();
  return performance.now() - start;
};
