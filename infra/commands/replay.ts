import { resolve } from "node:path";
import { type AwsStage, runInStage } from "../aws/stage.ts";
import { findRuleByNameOrPlugin, isRuleName } from "../catalogue/rule-names.ts";
import { type Command, commonCommandOptions, type ParsedOptions, writeNote } from "../cli/command.ts";
import { Complaint } from "../cli/complaint.ts";
import { formatDidYouMean } from "../cli/did-you-mean.ts";
import { readListOption, stageOption } from "../cli/options.ts";
import { readRuleNames } from "../project/project-rules.ts";
import { writeReplayJson, writeReplayText } from "../replay/output.ts";
import { readRecordings } from "../replay/recordings.ts";
import { replayAll } from "../replay/replay.ts";
import { type ReplayFoldersAndProcesses, runWithScratch } from "../replay/scratch.ts";
import { openReplaySide } from "../replay/versions.ts";
import { rulesOption } from "./shared/rules-option.ts";

export default {
  summary: "Sends recorded reviews to two versions of the rules, and prints the reviews with different responses.",
  usage: "PATH…",
  options: {
    against: {
      type: "string",
      value: "VERSION",
      default: "recorded",
      says: "the version to compare with: a commit, a folder, working-tree, or recorded for the recorded responses",
    },
    with: { type: "string", value: "VERSION", default: "working-tree", says: "the version to test" },
    rules: {
      ...rulesOption,
      says: "replay only reviews of these rules; a single rule also applies to cases without a rule",
    },
    cluster: {
      ...commonCommandOptions.cluster,
      says: "replay the reviews as if they had been recorded in this cluster",
    },
    settings: { type: "string", value: "recorded", says: "use the recorded settings with both versions" },
    config: { ...commonCommandOptions.config, says: "the file to read for the working tree instead of postern.yaml" },
    stage: {
      ...stageOption.stage,
      says: "if VERSION is live or a release such as r7: the stage that has this version",
    },
    seconds: { type: "string", value: "NUMBER", default: "10", says: "the maximum time of one review on this machine" },
    most: {
      type: "string",
      value: "NUMBER",
      default: "20",
      says: "the maximum number of reviews to print for each rule",
    },
    output: commonCommandOptions.output,
  },

  async run({ options, words }) {
    if (words.length === 0)
      throw new Complaint("name files or folders of recordings: postern replay PATH…; the path - is standard input");
    return runWithScratch((scratch) =>
      options.text("stage") === undefined
        ? run(words, options, scratch, undefined)
        : runInStage(options, (stage) => run(words, options, scratch, stage)),
    );
  },
} satisfies Command;

/** Replays recordings with two versions, prints the differences, and returns the exit code. */
const run = async (
  words: string[],
  options: ParsedOptions,
  scratch: ReplayFoldersAndProcesses,
  stage: AwsStage | undefined,
): Promise<number> => {
  const seconds = options.number("seconds") ?? 0;
  if (seconds < 1 || seconds > 900) throw new Complaint(`--seconds takes a number from 1 to 900, not ${seconds}`);
  const settings = options.text("settings");
  if (settings !== undefined && settings !== "recorded")
    throw new Complaint(`--settings takes recorded, not "${settings}"; without it, each version uses its own settings`);
  const ruleNames = await readRuleNames();
  // A name that is unknown here is kept, because the other version may have a rule of this name.
  const rules = readListOption(options, "rules").map((text) => findRuleByNameOrPlugin(text, ruleNames) ?? text);
  const wrong = rules.find((name) => !isRuleName(name));
  if (wrong !== undefined) throw new Complaint(`--rules takes rule names, such as pod-security, not "${wrong}"`);
  const config = options.text("config");
  const request = { rules, ...(config !== undefined && { config: resolve(config) }) };
  const sideOptions = { stage, request, milliseconds: seconds * 1000, scratch, say: writeNote };
  const [against, tried] = [options.text("against") ?? "", options.text("with") ?? ""];
  if (against === tried) throw new Complaint(`--against and --with are both ${against}; two versions are compared`);
  if (config !== undefined && ![against, tried].includes("working-tree"))
    throw new Complaint("--config needs --with working-tree or --against working-tree");
  // The versions are built one after the other, because one build alone uses several processors.
  const sides = [await openReplaySide(against, sideOptions), await openReplaySide(tried, sideOptions)] as const;
  const terms = { sides, rules, cluster: options.text("cluster"), useRecordedSettings: settings !== undefined };
  const results = replayAll(readRecordings(words), terms);
  const names = [sides[0].name, sides[1].name] as const;
  const maxPrintedPerRule = options.number("most") ?? 0; // The option's default is 20. With 0, no reviews are printed.
  const counts = await (options.text("output") === "json"
    ? writeReplayJson(results, names)
    : writeReplayText(results, names, maxPrintedPerRule));
  if (Object.values(counts).every((count) => count === 0)) {
    const suggestions = rules
      .filter((rule) => !ruleNames.includes(rule))
      .map((rule) => formatDidYouMean(rule, ruleNames));
    const lacking = rules.length > 0 ? `has no reviews of ${rules.join(", ")}` : "has no recordings";
    throw new Complaint([`${words.join(", ")} ${lacking}`, ...suggestions.filter(Boolean)].join("; ").trim());
  }
  if (counts.differs > 0) return 1;
  return counts.unplayed + counts.unreadable > 0 ? 3 : 0;
};
