import { rollBack } from "../aws/emergency.ts";
import { inStage, stageOption } from "../aws/stage.ts";
import { type Command, print } from "../command.ts";
import { Complaint } from "../complaint.ts";

export default {
  summary: "Takes a rule of a stage back to the version before, by one move of its alias.",
  usage: "RULE",
  options: {
    ...stageOption,
    to: { type: "string", value: "VERSION", says: "this version instead of the one before" },
  },

  async run({ options, words: [rule, ...rest] }) {
    if (rule === undefined || rest.length > 0) throw new Complaint("postern rollback takes one rule");
    const version = await inStage(options, (functions) => rollBack(functions, rule, options.text("to")));
    print(`${rule} is at version ${version}\n`);
  },
} satisfies Command;
