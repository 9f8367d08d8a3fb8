import { createHash } from "node:crypto";
import { isEffectiveByDefault } from "../infra/catalogue/upstream-plugins.ts";
import { minors, newestMinor } from "./control-plane/binaries.ts";

/** The seed of this run, which test/run.ts sets and prints. */
const runSeed = Number(process.env.POSTERN_SEED ?? 0);

/** Draws a number from 0 to below `count` by a seed. Draws with different names are independent of each other. */
const draw = (name: string, count: number, seed: number): number =>
  createHash("sha256").update(`${name} ${seed}`).digest().readUInt32BE() % count;

/**
 * Chooses a sixth of the rules by this run's seed, because the comparison of a rule with real API servers takes some
 * seconds. Suites that test rules by their cases and suites that test them by random requests get different sixths.
 * `npm run parity` compares every rule by both.
 */
export const chooseSixth = <Listed extends { name: string }>(
  rules: readonly Listed[],
  { testedBy, seed = runSeed }: { testedBy: "cases" | "random requests"; seed?: number },
): Listed[] => {
  const start = draw("sixth", 6, seed) + (testedBy === "cases" ? 0 : 1);
  // The sum of the letters' codes divides the names into sixths, which stay as they are when another rule is added.
  return rules.filter(({ name }) => [...name].reduce((sum, letter) => sum + letter.charCodeAt(0), start) % 6 === 0);
};

/** Returns the minor that this run compares beside the newest: the one of POSTERN_KUBERNETES, or one by the seed. */
export const chooseOtherMinor = (seed = runSeed): string => {
  const older = minors.filter((minor) => minor !== newestMinor);
  return process.env.POSTERN_KUBERNETES ?? older[draw("minor", older.length, seed)] ?? newestMinor;
};

/** What decides which minors a suite compares. */
interface MinorChoice {
  /** The environment variable that asks for a large run, which takes only one minor; undefined in other runs. */
  largeRun?: string | undefined;
  /** The seed gives group 0 one of the run's two minors and group 1 the other. Without a group, a suite gets both. */
  suiteGroup?: 0 | 1;
  seed?: number;
}

/**
 * Returns the minors that a suite compares: without `suiteGroup`, the newest and another one; with it, only one of the
 * two, or the minor of POSTERN_KUBERNETES if that is set. In a large run, each suite compares only the minor of
 * POSTERN_KUBERNETES, by default the newest.
 */
export const chooseMinors = ({ largeRun, suiteGroup, seed = runSeed }: MinorChoice = {}): string[] => {
  const { POSTERN_KUBERNETES: wanted } = process.env;
  if (largeRun !== undefined || (wanted && suiteGroup !== undefined)) return [wanted ?? newestMinor];
  const chosen = [...new Set([newestMinor, chooseOtherMinor(seed)])];
  if (suiteGroup === undefined) return chosen;
  return chosen.filter((_, index) => index === (draw("turn", 2, seed) + suiteGroup) % chosen.length);
};

/** Chooses a sixth of the rules that replace plugins: one half for the newest minor, one for the run's other minor. */
export const choosePluginRules = <Listed extends { name: string }>(
  pluginRules: readonly Listed[],
  seed = runSeed,
): (readonly [minor: string, pluginRules: Listed[]])[] => {
  const sixth = chooseSixth(pluginRules, { testedBy: "random requests", seed });
  const offset = draw("halves of the plugin rules", 2, seed);
  return [newestMinor, chooseOtherMinor(seed)].map((minor, half) => [
    minor,
    sixth.filter((_, index) => (index + offset) % 2 === half),
  ]);
};

/**
 * Divides slow tests into `count` parts. A run of all tests has one part, by its seed; other runs have all parts.
 * Returns a function that reports whether the test with an index belongs to the run.
 */
export const choosePart = (
  name: string,
  count: number,
  seed = runSeed,
  isRunOfAllTests = process.env.POSTERN_PARTS !== undefined,
): ((index: number) => boolean) => {
  const part = draw(name, count, seed);
  return (index) => !isRunOfAllTests || index % count === part;
};

/** Test files that take long. A run of all tests has one list of each pair, by its seed. */
export const alternatingFiles: readonly (readonly [string[], string[]])[] = [
  [["test/aws/project.test.ts", "test/local/release.test.ts"], ["test/local/upgrade.test.ts"]],
  [["test/aws/limits.test.ts", "test/aws/networks.test.ts"], ["test/aws/real-account.test.ts"]],
  [["test/aws/fleet-size.test.ts"], ["test/aws/package.test.ts"]],
  [["test/aws/event-rates.test.ts"], ["test/aws/quota-rates.test.ts"]],
  [["test/aws/unapplied-policies.test.ts", "test/aws/warm.test.ts"], ["test/cluster/pages.test.ts"]],
  [["test/local/package.test.ts"], ["test/local/audit-troubles.test.ts"]],
];

/** Lists the test files that a run of all tests leaves out by its seed. */
export const listLeftOut = (seed: number): string[] =>
  alternatingFiles.flatMap((pair, index) => pair[draw(`pair ${index}`, 2, seed)] ?? []);

/**
 * The upgrade that a suite makes in this run: from the run's older minor to the newest. The suite skips the upgrade if
 * the older minor has MutatingAdmissionPolicy already, or if the seed chooses the other of the two suites that upgrade.
 */
export const chooseUpgrade = (suite: 0 | 1, seed = runSeed): { older: string; newer: string; skip?: string } => {
  const upgrade = { older: chooseOtherMinor(seed), newer: newestMinor };
  if (isEffectiveByDefault("MutatingAdmissionPolicy", upgrade.older))
    return { ...upgrade, skip: `Kubernetes ${upgrade.older} has MutatingAdmissionPolicy already` };
  if (draw("upgrade", 2, seed) === suite) return upgrade;
  return { ...upgrade, skip: "another suite upgrades a cluster in this run" };
};
