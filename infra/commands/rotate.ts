import { runInStage } from "../aws/stage.ts";
import { type Command, commonCommandOptions, writeOutput } from "../cli/command.ts";
import { clusterAccessOptions, parseDurationMilliseconds, stageOption } from "../cli/options.ts";
import { createProgressPrinter } from "../cli/progress.ts";
import { readClusterCredentials } from "../clusters/access.ts";
import { rotateClusterKey, rotateStageKey } from "../rollout/rotate.ts";
import { readDeploymentConfig, readEndpointOptions } from "./shared/options.ts";

const { kubeconfig, context, url, ca } = clusterAccessOptions;

export default {
  summary: "Replaces the key that signs URLs, without failed reviews. The old key is deleted once no cluster uses it.",
  options: {
    ...stageOption,
    cluster: {
      type: "string",
      value: "NAME",
      says: "replace only the key of this cluster, and raise its keyVersion in postern.yaml",
    },
    "unused-for": {
      type: "string",
      value: "TIME",
      default: "10m",
      says: "how long the old key must be unused before it is deleted",
    },
    patience: {
      type: "string",
      value: "TIME",
      default: "1h",
      says: "how long to wait until no cluster uses the old key; run rotate again to continue",
    },
    kubeconfig,
    context,
    url,
    ca,
    config: commonCommandOptions.config,
  },

  async run({ options }) {
    const { clusters: chosenClusters, ...project } = await readDeploymentConfig(options);
    const all = [...project.config.clusters.keys()];
    const retirement = {
      unusedMilliseconds: parseDurationMilliseconds(options.text("unused-for"), "unused-for"),
      maxMilliseconds: parseDurationMilliseconds(options.text("patience"), "patience"),
    };
    const report = await runInStage(options, async (stage) => {
      const job = {
        ...project,
        stage,
        clusters: all,
        deployer: readClusterCredentials(options, all),
        ...(await readEndpointOptions(options)),
        harden: false,
        wave: 1,
        progress: createProgressPrinter(),
      };
      // Without --cluster, `chosenClusters` has all clusters, and the key of the whole stage is replaced.
      const [chosen] = options.text("cluster") === undefined ? [] : chosenClusters;
      return chosen === undefined ? rotateStageKey(job, retirement) : rotateClusterKey(job, chosen, retirement);
    });
    writeOutput(`${report}\n`);
  },
} satisfies Command;
