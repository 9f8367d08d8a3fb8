import { existsSync } from "node:fs";
import { join, relative } from "node:path";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { type Command, commonCommandOptions, writeNote } from "../cli/command.ts";
import { Complaint } from "../cli/complaint.ts";
import { getConfigFile, getProjectRoot, moduleExtension } from "../cli/roots.ts";
import { findRulesInspectingCluster } from "../clusters/inspection.ts";
import { readProject } from "../project/project.ts";
import { writeToOutput } from "../replay/output.ts";
import { type ReplayFoldersAndProcesses, runWithScratch } from "../replay/scratch.ts";
import { compareAnswers } from "../upgrade/answers.ts";
import { compareVersions } from "../upgrade/comparison.ts";
import { formatDifferences, hasDifferences } from "../upgrade/upgrade-report.ts";
import { installVersion, openInstalledVersion } from "../upgrade/versions.ts";

export default {
  summary: "Shows what another version of Postern would change in this project, before you install it.",
  usage: "--check VERSION [PATH…]",
  options: {
    check: { type: "string", value: "FILE|VERSION", says: "the file of a packed version, or a version or tag of npm" },
    output: commonCommandOptions.output,
  },

  async run({ options, words }) {
    const version = options.text("check");
    if (moduleExtension === ".ts")
      throw new Complaint(
        "this is a checkout of Postern, which git upgrades; postern replay PATH --against COMMIT compares the answers",
      );
    if (!version)
      throw new Complaint(
        "postern upgrade takes --check and a packed version, such as ./postern-0.2.0.tgz, and only compares; npm install with the same file upgrades this project",
      );
    const recordings = relative(process.cwd(), join(getProjectRoot(), "recordings"));
    const paths = words.length > 0 || !existsSync(recordings) ? words : [recordings];
    return runWithScratch((scratch) => compare(version, paths, options.text("output") === "json", scratch));
  },
} satisfies Command;

/** Prints what another version of Postern would change in this project. Returns the exit code. */
const compare = async (
  version: string,
  recordings: readonly string[],
  isJson: boolean,
  scratch: ReplayFoldersAndProcesses,
): Promise<number> => {
  const { catalogue, config } = await readProject(getConfigFile());
  const clusters = [...config.clusters];
  const installed = await openInstalledVersion(scratch);
  writeNote(`installs postern@${version} in a temporary copy of this project`);
  const versions = [installed, await installVersion(version, scratch)] as const;
  const names = clusters.map(([name]) => name);
  const { bundles, ...found } = await compareVersions(versions, names, scratch);
  const clusterDependentRules = clusters.flatMap(([, cluster]) => findRulesInspectingCluster(catalogue, cluster));
  // If the new version can't build the project, there are no bundles. Entries and answers are not compared then.
  const canBuild = bundles !== undefined;
  const notes = canBuild ? listNotes(clusterDependentRules, recordings) : [];
  const hasAnswers = canBuild && recordings.length > 0;
  // The JSON stays open for the answers, which `compareAnswers` writes one after the other.
  await writeToOutput(
    isJson
      ? `${JSON.stringify({ ...found, notes }).slice(0, -1)},"answers":${hasAnswers ? "" : "null"}`
      : `${formatDifferences(found)}${hasAnswers ? "\nanswers to recorded reviews\n" : ""}`,
  );
  const counts = hasAnswers ? await compareAnswers(found, bundles, recordings, isJson, scratch) : undefined;
  await writeToOutput(isJson ? "}\n" : notes.map((note) => `\n${note}\n`).join(""));
  if (hasDifferences(found) || (counts?.differs ?? 0) > 0) return 1;
  return (counts?.unplayed ?? 0) + (counts?.unreadable ?? 0) > 0 ? 3 : 0;
};

/** Returns a sentence for each thing that isn't compared. */
const listNotes = (clusterDependentRules: readonly CatalogueRule[], recordings: readonly string[]): string[] => {
  const names = [...new Set(clusterDependentRules.map(({ name }) => name))];
  return [
    ...(names.length > 0
      ? [`entries of ${names.join(", ")} that depend on objects in the cluster are not compared`]
      : []),
    ...(recordings.length === 0
      ? ["answers are not compared: there is no folder recordings, which postern record --to recordings makes"]
      : []),
  ];
};
