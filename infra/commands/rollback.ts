import { runInStage } from "../aws/stage.ts";
import { type Command, commonCommandOptions, writeOutput } from "../cli/command.ts";
import { Complaint } from "../cli/complaint.ts";
import { clusterAccessOptions, stageOption } from "../cli/options.ts";
import { createProgressPrinter } from "../cli/progress.ts";
import { readClusterCredentials } from "../clusters/access.ts";
import { rollBackAll, rollBackOne } from "../rollout/versions/rollback.ts";
import { readDeploymentConfig, resolveStageRule } from "./shared/options.ts";

const { cluster, kubeconfig, context } = clusterAccessOptions;

export default {
  summary:
    "Switches a rule of a stage back to its previous version by moving its alias. With --all, switches all rules and their entries.",
  usage: "[RULE]",
  options: {
    ...stageOption,
    all: { type: "boolean", says: "switch the functions of all rules back, and then the webhook entries in clusters" },
    to: {
      type: "string",
      value: "RELEASE",
      says: "with --all: the release, for instance r7; for one rule: the version",
    },
    cluster,
    kubeconfig,
    context,
    config: commonCommandOptions.config,
  },

  async run({ options, words: [text, ...rest] }) {
    const progress = createProgressPrinter();
    if (!options.flag("all")) {
      if (text === undefined || rest.length > 0)
        throw new Complaint("name one rule, or all: postern rollback RULE, or postern rollback --all");
      if (options.text("cluster") !== undefined)
        throw new Complaint("--cluster needs --all: all clusters use the same function of a rule");
      const rule = await resolveStageRule(text);
      const version = await runInStage(options, (stage) => rollBackOne(stage, rule, options.text("to"), progress));
      writeOutput(`${rule} is at version ${version}\n`);
      return;
    }
    if (text !== undefined) throw new Complaint(`postern rollback --all is for all rules; leave out ${text}`);
    const project = await readDeploymentConfig(options);
    const deployer = readClusterCredentials(options, project.clusters);
    const { id, like } = await runInStage(options, (stage) =>
      rollBackAll({ ...project, stage, deployer, progress }, options.text("to")),
    );
    // `like` is the older release to which the rollback returned. It is absent if an unfinished deployment was undone:
    // all rules are then as in the newest release before the rollback's own.
    const restored = like ?? id - 1;
    writeOutput(`all rules are as in release r${restored}; this is now release r${id}\n`);
  },
} satisfies Command;
