import { rollBack } from "../aws/glass.ts";
import { inStage, stageOption } from "../aws/stage.ts";
import { type Command, print } from "../command.ts";
import { Complaint } from "../complaint.ts";

export default {
  summary: "Takes a rule of a stage back to the version before, by one move of its alias.",
  usage: "RULE|--all",
  options: {
    ...stageOption,
    all: { type: "boolean", says: "every rule of the stage that has a version before" },
    to: { type: "string", value: "VERSION", says: "this version instead of the one before" },
  },

  async run({ options, words: [rule, ...rest] }) {
    const [all, to] = [options.flag("all"), options.text("to")];
    if (rest.length > 0 || (rule === undefined) !== all || (all && to !== undefined))
      throw new Complaint("postern rollback takes one rule, and perhaps --to; or --all");
    return inStage(options, async (functions) => {
      let failed = 0;
      for (const name of rule === undefined ? await functions.rules() : [rule])
        await rollBack(functions, name, to).then(
          (version) => print(`${name} is at version ${version}\n`),
          (error) => {
            if (!all || !(error instanceof Complaint)) throw error;
            failed += 1;
            print(`${error.message}\n`);
          },
        );
      return failed > 0 ? 1 : 0;
    });
  },
} satisfies Command;
