import { once } from "node:events";
import { resolve } from "node:path";
import { type AwsStage, runInStage } from "../aws/stage.ts";
import { findRuleByNameOrPlugin, isRuleName } from "../catalogue/rule-names.ts";
import { createPainter, isColoured } from "../check/reports/format.ts";
import { type Command, commonCommandOptions, type ParsedOptions } from "../cli/command.ts";
import { Complaint } from "../cli/complaint.ts";
import { formatDidYouMean } from "../cli/did-you-mean.ts";
import { readListOption, stageOption } from "../cli/options.ts";
import { readRuleNames } from "../project/rules.ts";
import { readRecordings } from "../replay/recordings.ts";
import { type ReplayedRecordingResult, replayAll } from "../replay/replay.ts";
import {
  computeResultHunks,
  countResult,
  createCounts,
  formatReplayResult,
  formatReplaySummary,
  type ReplayCounts,
} from "../replay/report.ts";
import { createReplayFoldersAndProcesses, type ReplayFoldersAndProcesses } from "../replay/scratch.ts";
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
      says: "the stage whose versions are meant, if VERSION is live or a release such as r7",
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
      throw new Complaint("postern replay takes files or folders of recordings, or - for standard input");
    const scratch = createReplayFoldersAndProcesses();
    const createExit = (code: number) => () => {
      scratch.remove();
      process.exit(code);
    };
    // Exits with 3 if standard output is closed early: without a verdict, the exit code must not be 0.
    const [exitOnSignal, exitWithoutReader] = [createExit(130), createExit(3)];
    for (const signal of signals) process.once(signal, exitOnSignal);
    process.stdout.prependListener("error", exitWithoutReader);
    try {
      if (options.text("stage") === undefined) return await run(words, options, scratch, undefined);
      return await runInStage(options, (stage) => run(words, options, scratch, stage));
    } finally {
      for (const signal of signals) process.off(signal, exitOnSignal);
      process.stdout.off("error", exitWithoutReader);
      scratch.remove();
    }
  },
} satisfies Command;

const signals = ["SIGINT", "SIGTERM", "SIGHUP"];

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
  const known = await readRuleNames();
  // An unknown name is kept as it is: the other version may have the rule.
  const rules = readListOption(options, "rules").map((text) => findRuleByNameOrPlugin(text, known) ?? text);
  const wrong = rules.find((name) => !isRuleName(name));
  if (wrong !== undefined) throw new Complaint(`--rules takes names of rules; "${wrong}" can't be one`);
  const config = options.text("config");
  const wish = { rules, ...(config !== undefined && { config: resolve(config) }) };
  const say = (line: string) => void process.stderr.write(`${line}\n`);
  const means = { stage, wish, milliseconds: seconds * 1000, scratch, say };
  const [against, tried] = [options.text("against") ?? "", options.text("with") ?? ""];
  if (against === tried) throw new Complaint(`--against and --with are both ${against}; two versions are compared`);
  if (config !== undefined && ![against, tried].includes("working-tree"))
    throw new Complaint("--config is for working-tree, which is neither of the two versions");
  // The versions are built one after the other, because each build uses both processors.
  const sides = [await openReplaySide(against, means), await openReplaySide(tried, means)] as const;
  const terms = { sides, rules, cluster: options.text("cluster"), asRecorded: settings !== undefined };
  const results = replayAll(readRecordings(words), terms);
  const names = [sides[0].name, sides[1].name] as const;
  const counts = await (options.text("output") === "json"
    ? writeJson(results, names)
    : writeText(results, names, options.number("most") ?? 0));
  if (Object.values(counts).every((count) => count === 0)) {
    const meant = rules.filter((rule) => !known.includes(rule)).map((rule) => formatDidYouMean(rule, known));
    const lacking = rules.length > 0 ? `has no reviews of ${rules.join(", ")}` : "has no recordings";
    throw new Complaint([`${words.join(", ")} ${lacking}`, ...meant.filter(Boolean)].join("; ").trim());
  }
  if (counts.differs > 0) return 1;
  return counts.unplayed + counts.unreadable > 0 ? 3 : 0;
};

/** Prints a replay's results rule by rule: at most `most`, and each reason for a missing answer only once. */
const writeText = async (
  results: AsyncIterable<ReplayedRecordingResult>,
  names: readonly [string, string],
  most: number,
): Promise<ReplayCounts> => {
  const paint = createPainter(isColoured(process.stdout, process.env));
  const counts = createCounts();
  let [rule, shown, more, unread] = ["", 0, 0, 0];
  const reasons = new Set<string>();
  const turn = async (next: string) => {
    if (more > 0) await writeToOutput(`  and ${more} more of ${rule}\n`);
    [rule, shown, more] = [next, 0, 0];
    reasons.clear();
  };
  for await (const result of results) {
    countResult(counts, result);
    if (result.state === "unreadable") {
      if (unread++ < most) process.stderr.write(formatReplayResult(result, names, createPainter(false)));
      continue;
    }
    const text = formatReplayResult(result, names, paint);
    if (text === "") continue;
    if (result.rule !== rule) await turn(result.rule);
    const reason = getFaults(result);
    if (shown === most || reasons.has(reason)) more++;
    else {
      if (reason !== "") reasons.add(reason);
      if (shown++ === 0) await writeToOutput(`${paint("bold", rule)}\n`);
      await writeToOutput(text);
    }
  }
  await turn("");
  if (Object.values(counts).some((count) => count > 0)) await writeToOutput(formatReplaySummary(counts));
  return counts;
};

const getFaults = ({ answers }: Exclude<ReplayedRecordingResult, { state: "unreadable" }>): string =>
  answers.map((answer) => ("fault" in answer ? answer.fault : "absent" in answer ? answer.absent : "")).join("");

/**
 * Prints the results of a replay as one JSON document, with a line for each review whose answers differ or that can't
 * be replayed.
 */
const writeJson = async (
  results: AsyncIterable<ReplayedRecordingResult>,
  names: readonly [string, string],
): Promise<ReplayCounts> => {
  const counts = createCounts();
  await writeToOutput(`{"against":${JSON.stringify(names[0])},"with":${JSON.stringify(names[1])},"reviews":[`);
  let separator = "\n";
  for await (const result of results) {
    countResult(counts, result);
    if (result.state === "alike" || result.state === "neither") continue;
    const base =
      result.state === "unreadable"
        ? result
        : { ...result, answers: dropObjects(result), difference: computeResultHunks(result) };
    await writeToOutput(`${separator}${JSON.stringify(base)}`);
    separator = ",\n";
  }
  await writeToOutput(`\n],"summary":${JSON.stringify(counts)}}\n`);
  return counts;
};

/**
 * Returns the compared answers without whole objects: the diff shows how these differ, and hides values of Secrets.
 */
const dropObjects = ({ answers }: Exclude<ReplayedRecordingResult, { state: "unreadable" }>) =>
  answers.map((answer) => ("made" in answer ? { ...answer, made: { ...answer.made, object: undefined } } : answer));

/** Writes to standard output, and waits while its reader is slow. */
const writeToOutput = async (text: string): Promise<void> => {
  if (!process.stdout.write(text)) await once(process.stdout, "drain");
};
