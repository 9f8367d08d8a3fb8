import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { UnavoidableCheckCpuSeconds } from "./check-floor-process.ts";
import { writeManifestsAndCountBytes } from "./manifests.ts";
import type { ProcessUsage } from "./meter.ts";
import { runNodeAndParseOutput } from "./processes.ts";
import { measureInTurn, type RatioSummary, summarizeRatios } from "./ratios.ts";

/** The cost of checking many manifests, beside the least that it could be. */
export interface CheckMeasurement {
  manifests: number;
  bytes: number;
  /**
   * Median seconds of CPU time: of a whole check, and of the work that any check needs (see MinimumCheckCpuSeconds).
   */
  seconds: { check: number; reading: number; ownReading: number; rules: number };
  /** The peak memory (maximum resident set size) of the `postern check` process, in bytes. */
  memory: number;
  /**
   * The check's CPU time, divided by that of its rules plus that of reading the files with the `yaml` package. The bar
   * is for this ratio.
   */
  overParser: RatioSummary;
  /** The check's CPU time, divided by that of its rules plus that of its own way to read the files. */
  overReader: RatioSummary;
}

/** Measures checks of this many manifests with the repository's own postern.yaml, each in a process of its own. */
export const measureCheck = async (folder: string, rounds: number, manifests = 10_000): Promise<CheckMeasurement> => {
  const place = join(folder, "manifests");
  await mkdir(place);
  try {
    const bytes = await writeManifestsAndCountBytes(place, manifests);
    const run = (file: string, ...args: string[]) =>
      runNodeAndParseOutput(file, { options: ["--import", new URL("meter.ts", import.meta.url).href], args });
    const measured = await measureInTurn(
      rounds,
      async () => (await run("../main.ts", "check", "--config", config, place)) as ProcessUsage,
      async () => (await run("check-floor-process.ts", config, place)) as UnavoidableCheckCpuSeconds,
      0,
    );
    const computeFloorRatio = (floorOf: (floor: UnavoidableCheckCpuSeconds) => number) =>
      summarizeRatios(measured.map(([{ seconds }, floor]) => seconds / floorOf(floor)));
    const computeMedian = (secondsOf: (check: ProcessUsage, floor: UnavoidableCheckCpuSeconds) => number) =>
      summarizeRatios(measured.map((pair) => secondsOf(...pair))).median;
    return {
      manifests,
      bytes,
      seconds: {
        check: computeMedian(({ seconds }) => seconds),
        reading: computeMedian((_, { reading }) => reading),
        ownReading: computeMedian((_, { ownReading }) => ownReading),
        rules: computeMedian((_, { rules }) => rules),
      },
      memory: Math.max(...measured.map(([{ memory }]) => memory)),
      overParser: computeFloorRatio(({ reading, rules }) => reading + rules),
      overReader: computeFloorRatio(({ ownReading, rules }) => ownReading + rules),
    };
  } finally {
    await rm(place, { recursive: true });
  }
};

const config = fileURLToPath(new URL("../../postern.yaml", import.meta.url));
