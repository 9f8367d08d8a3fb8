import { type AwsStage, runInStage } from "../aws/stage.ts";
import { type Command, commonCommandOptions, writeOutput } from "../cli/command.ts";
import { Complaint } from "../cli/complaint.ts";
import { clusterAccessOptions, readListOption, stageOption } from "../cli/options.ts";
import { createProgressPrinter } from "../cli/progress.ts";
import { getConfigFile } from "../cli/roots.ts";
import { readClusterCredentials } from "../clusters/access.ts";
import { readProject, reportBroken } from "../project/project.ts";
import { destroyStage } from "../rollout/destroy.ts";
import { describeDeletedObjects, formatStageContents, readStageContents } from "../rollout/stage/stage-contents.ts";
import { listChosenClusters } from "./shared/options.ts";

const { cluster, kubeconfig, context, url } = clusterAccessOptions;

export default {
  summary: "Deletes a stage: first the webhook entries in clusters, then the functions.",
  options: {
    ...stageOption,
    yes: { type: "boolean", says: "really delete; without this option, only print what would be deleted" },
    "configs-only": {
      type: "boolean",
      says: "delete only the stage's objects in clusters: entries, policies and roles",
    },
    "with-data": {
      type: "boolean",
      says: "also delete the logs, and the table of values that rules keep between reviews",
    },
    forget: {
      type: "string",
      multiple: true,
      value: "NAME",
      says: "a cluster that no longer exists; don't try to delete webhook entries in it",
    },
    cluster,
    kubeconfig,
    context,
    url,
    config: commonCommandOptions.config,
  },

  async run({ options }) {
    const file = getConfigFile();
    const { config, broken } = await readProject(file);
    reportBroken(broken, () => false); // Broken rules are reported, but none is needed.
    const onlyEntriesOfClusters = options.flag("configs-only") ? listChosenClusters(config, options) : undefined;
    if (options.text("cluster") !== undefined && onlyEntriesOfClusters === undefined)
      throw new Complaint("--cluster needs --configs-only: all clusters use the same functions");
    const withData = options.flag("with-data");
    if (withData && onlyEntriesOfClusters !== undefined)
      throw new Complaint("--with-data can't be used with --configs-only, which deletes nothing in AWS");
    const destroy = async (stage: AwsStage) => {
      const forgotten = readListOption(options, "forget");
      const deployer = readClusterCredentials(options, onlyEntriesOfClusters ?? [...config.clusters.keys()]);
      const destruction = {
        stage,
        config,
        file,
        deployer,
        forgotten,
        onlyEntriesOfClusters,
        withData,
        progress: createProgressPrinter(),
      };
      if (!options.flag("yes")) {
        const preview = onlyEntriesOfClusters
          ? `deleted:\n  ${describeDeletedObjects(config, onlyEntriesOfClusters)}`
          : formatStageContents(destruction, await readStageContents(destruction));
        writeOutput(`This would be the result; --yes deletes.\n${preview}\n`);
        return 0;
      }
      writeOutput(`${await destroyStage({ ...destruction, url: options.text("url") })}\n`);
      return 0;
    };
    return runInStage(options, destroy, { worksWithoutAws: onlyEntriesOfClusters !== undefined });
  },
} satisfies Command;
