import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { writeManifestsAndCountBytes } from "./inputs/generated-manifests.ts";
import type { UnavoidableCheckCpuSeconds } from "./processes/check-floor-process.ts";
import type { ProcessUsage } from "./processes/meter.ts";
import { runNodeAndParseOutput } from "./processes/processes.ts";
import { measureInTurn, type RatioSummary, summarizeRatios } from "./ratios.ts";

/** The cost of checking many manifests, compared with the cost of the work that no check can avoid. */
export interface CheckMeasurement {
  manifests: number;
  bytes: number;
  /**
   * Median seconds of CPU time: of checks (whole; without plugins; without plugins and Pods of workloads), and of work
   * that no check can avoid (reading the files with the `yaml` package or check's own reader; running the rules).
   */
  seconds: {
    check: number;
    withoutPlugins: number;
    withoutPods: number;
    yamlPackageReading: number;
    ownReading: number;
    rules: number;
  };
  /** The peak memory (maximum resident set size) of the `postern check` process, in bytes. */
  memory: number;
  /** The check's CPU time, divided by that of the same check without plugins (`--plugins none`). */
  ratioToCheckWithoutPlugins: RatioSummary;
  /**
   * The CPU time of a check without plugins and without the Pods of workloads, divided by that of its rules plus that of
   * reading the files with the `yaml` package.
   */
  ratioToYamlPackage: RatioSummary;
  /**
   * The CPU time of a check without plugins and without the Pods of workloads, divided by that of its rules plus that of
   * reading the files with check's own reader.
   */
  ratioToOwnReader: RatioSummary;
}

/**
 * Measures checks of this many manifests with the repository's own postern.yaml, each in a process of its own. In turn
 * with the checks, measures the work that no check can avoid: the reading of the files, and the rules. The members
 * `ratioTo…` of the result are ratios of the CPU time of a check to that of another check or of this work.
 */
export const measureCheck = async (folder: string, rounds: number, manifests = 10_000): Promise<CheckMeasurement> => {
  const manifestFolder = join(folder, "manifests");
  await mkdir(manifestFolder);
  try {
    const bytes = await writeManifestsAndCountBytes(manifestFolder, manifests);
    const run = (file: string, ...args: string[]) =>
      runNodeAndParseOutput(file, { options: ["--import", new URL("processes/meter.ts", import.meta.url).href], args });
    const check = async (...options: string[]) =>
      (await run("../../../infra/main.ts", "check", "--config", config, manifestFolder, ...options)) as ProcessUsage;
    const measured = await measureInTurn(
      rounds,
      async () => ({
        check: await check(),
        withoutPlugins: await check("--plugins", "none"),
        withoutPods: await check("--plugins", "none", "--no-pod-templates"),
      }),
      async () => (await run("check-floor-process.ts", config, manifestFolder)) as UnavoidableCheckCpuSeconds,
      { warmUpRounds: 0 },
    );
    const rows = measured.map(([{ check, withoutPlugins, withoutPods }, unavoidable]) => ({
      ...unavoidable,
      check: check.seconds,
      withoutPlugins: withoutPlugins.seconds,
      withoutPods: withoutPods.seconds,
    }));
    const summarize = (select: (row: (typeof rows)[number]) => number) => summarizeRatios(rows.map(select));
    return {
      manifests,
      bytes,
      seconds: {
        check: summarize(({ check }) => check).median,
        withoutPlugins: summarize(({ withoutPlugins }) => withoutPlugins).median,
        withoutPods: summarize(({ withoutPods }) => withoutPods).median,
        yamlPackageReading: summarize(({ yamlPackageReading }) => yamlPackageReading).median,
        ownReading: summarize(({ ownReading }) => ownReading).median,
        rules: summarize(({ rules }) => rules).median,
      },
      memory: Math.max(...measured.map(([{ check }]) => check.memory)),
      ratioToCheckWithoutPlugins: summarize(({ check, withoutPlugins }) => check / withoutPlugins),
      ratioToYamlPackage: summarize(
        ({ withoutPods, yamlPackageReading, rules }) => withoutPods / (yamlPackageReading + rules),
      ),
      ratioToOwnReader: summarize(({ withoutPods, ownReading, rules }) => withoutPods / (ownReading + rules)),
    };
  } finally {
    await rm(manifestFolder, { recursive: true });
  }
};

const config = fileURLToPath(new URL("../../postern.yaml", import.meta.url));
