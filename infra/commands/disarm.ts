import { runInStage } from "../aws/stage.ts";
import { type Command, commonCommandOptions, writeNote, writeOutput } from "../cli/command.ts";
import { parseDurationMilliseconds, stageOption } from "../cli/options.ts";
import { createProgressPrinter } from "../cli/progress.ts";
import { disarmRule } from "../rollout/clusters/disarm.ts";
import { describeNativePolicies, tryReadReleaseStore } from "../rollout/versions/rollback.ts";
import { describeColdVersion } from "../rollout/versions/warm.ts";
import { ruleLabel } from "../webhooks/native-policies.ts";
import { resolveStageRule } from "./shared/options.ts";

const bindings = "validatingadmissionpolicybindings,mutatingadmissionpolicybindings";

export default {
  summary:
    "Makes a rule of a stage allow everything for some time. After this time, the rule decides again. The command needs no access to a cluster.",
  usage: "RULE",
  options: {
    ...stageOption,
    for: { type: "string", value: "TIME", says: "how long the rule allows everything, for instance 90s, 30m or 2h" },
    config: commonCommandOptions.config,
  },

  async run({ options, words: [text = ""] }) {
    const rule = await resolveStageRule(text);
    const until = new Date(Date.now() + parseDurationMilliseconds(options.text("for"), "for"));
    await runInStage(options, async (stage) => {
      const { functions } = stage;
      const version = await disarmRule(functions, rule, until);
      writeOutput(`${rule} allows everything until ${until.toISOString()}, as version ${version}\n`);
      const cold = await describeColdVersion(functions, rule, version);
      if (cold !== undefined) writeNote(cold);
      const releases = await tryReadReleaseStore(stage, createProgressPrinter());
      const natives = describeNativePolicies(releases?.all[0], rule);
      if (natives !== undefined)
        writeNote(
          `${natives}; there, kubectl delete ${bindings} -l ${ruleLabel}=${rule} ends them until postern deploy restores them`,
        );
    });
  },
} satisfies Command;
