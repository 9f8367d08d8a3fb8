import { runInStage } from "../aws/stage.ts";
import { type Command, writeOutput } from "../cli/command.ts";
import { parseDurationMilliseconds, stageOption } from "../cli/options.ts";
import { disarmRule } from "../rollout/disarm.ts";
import { describeColdVersion } from "../rollout/warm.ts";
import { resolveStageRule } from "./shared/options.ts";

export default {
  summary:
    "Makes a rule of a stage allow everything for some time. It needs no access to a cluster. The rule arms itself again.",
  usage: "RULE",
  options: {
    ...stageOption,
    for: { type: "string", value: "TIME", says: "how long the rule allows everything, for instance 90s, 30m or 2h" },
  },

  async run({ options, words: [text = ""] }) {
    const rule = await resolveStageRule(text);
    const until = new Date(Date.now() + parseDurationMilliseconds(options.text("for"), "for"));
    await runInStage(options, async ({ functions }) => {
      const version = await disarmRule(functions, rule, until);
      writeOutput(`${rule} allows everything until ${until.toISOString()}, as version ${version}\n`);
      const cold = await describeColdVersion(functions, rule, version);
      if (cold !== undefined) process.stderr.write(`${cold}\n`);
    });
  },
} satisfies Command;
