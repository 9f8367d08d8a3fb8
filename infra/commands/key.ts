import { type Command, commonCommandOptions, writeOutput } from "../cli/command.ts";
import { stageOption } from "../cli/options.ts";
import { getConfigFile } from "../cli/roots.ts";
import { chooseCluster } from "../config/config.ts";
import { readProject, reportBroken } from "../project/project.ts";
import { loadStageOrLocalUrlSigner } from "./shared/options.ts";

export default {
  summary:
    "Prints the key of a cluster: the first part of the path of its URLs. Keep it secret: anyone with it can send reviews as the cluster.",
  usage: "CLUSTER",
  options: { ...stageOption, config: commonCommandOptions.config, output: commonCommandOptions.output },

  async run({ options, words: [name] }) {
    const file = getConfigFile();
    const { config, broken } = await readProject(file);
    reportBroken(broken, () => false); // Broken rules are reported, but none is needed.
    const [cluster, { keyVersions }] = chooseCluster(config, name);
    const signer = await loadStageOrLocalUrlSigner(options, file);
    const keyVersion = keyVersions.at(-1) ?? 1;
    const segment = signer.signSegment(cluster, keyVersion);
    writeOutput(
      options.text("output") === "json"
        ? `${JSON.stringify({ cluster, keyVersion, segment, publicKey: signer.publicKey })}\n`
        : `${segment}\n`,
    );
  },
} satisfies Command;
