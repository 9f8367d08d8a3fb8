import { minors, newestMinor } from "../../infra/parity/control-plane/binaries.ts";

/** The seed of this run, which test/run.ts sets and prints. */
const seed = Number(process.env.POSTERN_SEED ?? 0);

/**
 * Chooses a third of the rules by this run's seed. Each rule takes seconds of API servers, so a run compares a third in one
 * suite, and another third in another suite. `npx postern parity` compares all rules in both ways.
 */
export const chooseThird = <Listed extends { name: string }>(rules: readonly Listed[], third: 0 | 1): Listed[] =>
  rules.filter(({ name }) => ([...name].reduce((sum, letter) => sum + letter.charCodeAt(0), seed) + third) % 3 === 0);

/** Returns the minor that this run compares beside the newest: the one of POSTERN_KUBERNETES, or one by the seed. */
export const chooseOtherMinor = (): string => {
  const older = minors.filter((minor) => minor !== newestMinor);
  return process.env.POSTERN_KUBERNETES ?? older[seed % older.length] ?? newestMinor;
};

/**
 * Returns the minors that a suite compares: the newest and another one, or of these two only the one whose turn it is by
 * this run's seed or POSTERN_KUBERNETES. A `large` run, whose size a variable sets, takes only the minor of
 * POSTERN_KUBERNETES, or the newest.
 */
export const chooseMinors = (large?: string, turn?: 0 | 1): string[] => {
  const { POSTERN_KUBERNETES: wanted } = process.env;
  if (large !== undefined || (wanted && turn !== undefined)) return [wanted ?? newestMinor];
  const both = [...new Set([newestMinor, chooseOtherMinor()])];
  return turn === undefined ? both : both.filter((_, index) => index === (seed + turn) % both.length);
};

/** The minors before and after the upgrade that brings MutatingAdmissionPolicy. */
export const upgradedMinors = ["1.35", "1.36"] as const;
