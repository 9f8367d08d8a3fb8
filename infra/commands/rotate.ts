import { inStage } from "../aws/stage.ts";
import { readCatalogue } from "../catalogue/registry.ts";
import { type Command, common, print } from "../cli/command.ts";
import { clusterOptions, duration, stageOption } from "../cli/options.ts";
import { openProgress } from "../cli/progress.ts";
import { deployerIn } from "../clusters/access.ts";
import { configFile } from "../config/config.ts";
import { readConfig } from "../project/read.ts";
import { rotate, rotateCluster } from "../rollout/rotate.ts";
import { chosenClusters, doorIn } from "./shared/options.ts";

const { kubeconfig, context, url, ca } = clusterOptions;

export default {
  summary:
    "Replaces the key that signs URLs, without a review that fails: the old one goes when nobody uses it any more.",
  options: {
    ...stageOption,
    cluster: { type: "string", value: "NAME", says: "only this cluster's key, by its keyVersion in postern.yaml" },
    "unused-for": { type: "string", value: "TIME", default: "10m", says: "how long no review may have come with it" },
    patience: {
      type: "string",
      value: "TIME",
      default: "1h",
      says: "how long to wait for that; run again, it goes on",
    },
    ...{ kubeconfig, context, url, ca },
    config: common.config,
  },

  async run({ options }) {
    const file = options.text("config") ?? configFile;
    const catalogue = await readCatalogue();
    const config = await readConfig(file, catalogue);
    const name = options.text("cluster");
    const retirement = {
      unused: duration(options.text("unused-for"), "unused-for"),
      patience: duration(options.text("patience"), "patience"),
    };
    const [chosen] = chosenClusters(config, options);
    const said = await inStage(options, async (stage) => {
      const job = {
        ...{ stage, config, catalogue, file, clusters: [...config.clusters.keys()] },
        ...{ deployer: deployerIn(options, [...config.clusters.keys()]), ...(await doorIn(options)) },
        ...{ harden: false, wave: 1, progress: openProgress() },
      };
      return name === undefined ? rotate(job, retirement) : rotateCluster(job, chosen ?? name, retirement);
    });
    print(`${said}\n`);
  },
} satisfies Command;
