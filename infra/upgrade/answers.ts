import { openBundledVersion } from "../replay/bundle-side.ts";
import { writeReplayJson, writeReplayText } from "../replay/output.ts";
import { readRecordings } from "../replay/recordings.ts";
import { replayAll } from "../replay/replay.ts";
import type { ReplayCounts } from "../replay/replay-report.ts";
import type { ReplayFoldersAndProcesses } from "../replay/scratch.ts";
import { createReplaySideOfVersion } from "../replay/sides.ts";
import type { UpgradeDifferences } from "./comparison.ts";

// The defaults of `postern replay`.
const reviewLimitMilliseconds = 10_000;
const maxPrintedPerRule = 20;

/** Sends recorded reviews to both versions' bundles, and prints the reviews with different answers. */
export const compareAnswers = async (
  { from, to }: UpgradeDifferences,
  bundles: readonly [string, string],
  recordings: readonly string[],
  isJson: boolean,
  scratch: ReplayFoldersAndProcesses,
): Promise<ReplayCounts> => {
  const open = async (version: string, folder: string) =>
    createReplaySideOfVersion(await openBundledVersion(version, folder, reviewLimitMilliseconds, scratch));
  const sides = [await open(from, bundles[0]), await open(to, bundles[1])] as const;
  const results = replayAll(readRecordings(recordings), {
    sides,
    rules: [],
    cluster: undefined,
    useRecordedSettings: false,
  });
  return isJson ? writeReplayJson(results, [from, to]) : writeReplayText(results, [from, to], maxPrintedPerRule);
};
