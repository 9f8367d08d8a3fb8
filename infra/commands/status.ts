import { type Standing, standingOf } from "../aws/emergency.ts";
import { inStage, stageOption } from "../aws/stage.ts";
import { type Command, common, print, table } from "../command.ts";
import { Complaint } from "../complaint.ts";

export default {
  summary: "Says of each rule of a stage which version is live, since when, and whether it is disarmed.",
  options: { ...stageOption, output: common.output },

  async run({ options }) {
    const faults: string[] = [];
    const standings = await inStage(options, async (functions) => {
      const found: Standing[] = [];
      for (const rule of await functions.rules())
        await standingOf(functions, rule).then(
          (standing) => found.push(standing),
          (error) => {
            // One that is broken hides no other.
            if (!(error instanceof Complaint)) throw error;
            faults.push(error.message);
          },
        );
      return found;
    });
    for (const fault of faults) process.stderr.write(`${fault}\n`);
    if (standings.length + faults.length === 0)
      throw new Complaint(`stage ${options.text("stage")} has no functions`, 1);
    const code = faults.length > 0 ? 1 : 0;
    if (options.text("output") === "json") {
      print(`${JSON.stringify(standings, null, 2)}\n`);
      return code;
    }
    const rows = standings.map(({ rule, version, weights, modified, disarmed, previous }) => {
      const trial = Object.entries(weights).map(([other, share]) => `, ${Math.round(share * 100)}% version ${other}`);
      const state = disarmed && disarmed.until > new Date() ? `disarmed until ${disarmed.until.toISOString()}` : "";
      return [rule, `${version}${trial.join("")}`, modified.toISOString(), previous ?? "-", state];
    });
    print(table([["RULE", "LIVE", "PUBLISHED", "BEFORE", ""], ...rows]));
    return code;
  },
} satisfies Command;
