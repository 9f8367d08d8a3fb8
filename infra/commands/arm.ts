import { runInStage } from "../aws/stage.ts";
import { type Command, commonCommandOptions, writeOutput } from "../cli/command.ts";
import { stageOption } from "../cli/options.ts";
import { restoreDisarmedRule } from "../rollout/clusters/disarm.ts";
import { resolveStageRule } from "./shared/options.ts";

export default {
  summary: "Ends postern disarm: the rule decides again at once.",
  usage: "RULE",
  options: { ...stageOption, config: commonCommandOptions.config },

  async run({ options, words: [text = ""] }) {
    const rule = await resolveStageRule(text);
    const version = await runInStage(options, ({ functions }) => restoreDisarmedRule(functions, rule));
    writeOutput(`${rule} decides again, as version ${version}\n`);
  },
} satisfies Command;
