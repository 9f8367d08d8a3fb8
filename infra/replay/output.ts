import { once } from "node:events";
import { createPainter, isColoured } from "../check/reports/format.ts";
import type { ReplayedRecordingResult } from "./replay.ts";
import {
  computeResultHunks,
  countResult,
  createCounts,
  formatReplayResult,
  formatReplaySummary,
  type ReplayCounts,
} from "./replay-report.ts";

/**
 * Prints a replay's results rule by rule: at most `maxPerRule` for each rule, and each reason for a missing answer only
 * once for each rule. Errors of unreadable recordings go to standard error.
 */
export const writeReplayText = async (
  results: AsyncIterable<ReplayedRecordingResult>,
  versions: readonly [string, string],
  maxPerRule: number,
): Promise<ReplayCounts> => {
  const paint = createPainter(isColoured(process.stdout, process.env));
  const counts = createCounts();
  let [rule, shown, omitted, unreadable] = ["", 0, 0, 0];
  const shownFaults = new Set<string>();
  const startRule = async (nextRule: string) => {
    if (omitted > 0) await writeToOutput(`  and ${omitted} more of ${rule}\n`);
    [rule, shown, omitted] = [nextRule, 0, 0];
    shownFaults.clear();
  };
  for await (const result of results) {
    countResult(counts, result);
    if (result.state === "unreadable") {
      if (unreadable++ < maxPerRule) process.stderr.write(formatReplayResult(result, versions, createPainter(false)));
      continue;
    }
    const text = formatReplayResult(result, versions, paint);
    if (text === "") continue;
    if (result.rule !== rule) await startRule(result.rule);
    const faults = getFaults(result);
    if (shown === maxPerRule || shownFaults.has(faults)) omitted++;
    else {
      if (faults !== "") shownFaults.add(faults);
      if (shown++ === 0) await writeToOutput(`${paint("bold", rule)}\n`);
      await writeToOutput(text);
    }
  }
  // Prints how many results of the last rule were omitted.
  await startRule("");
  if (Object.values(counts).some((count) => count > 0)) await writeToOutput(formatReplaySummary(counts));
  return counts;
};

/** Returns why answers are missing, as one text; empty if both versions answered. */
const getFaults = ({ answers }: Exclude<ReplayedRecordingResult, { state: "unreadable" }>): string =>
  answers
    .map((answer) => {
      if ("fault" in answer) return answer.fault;
      return "absent" in answer ? answer.absent : "";
    })
    .join("");

/**
 * Prints the results of a replay as one JSON document, with a line for each review whose answers differ or that can't
 * be replayed.
 */
export const writeReplayJson = async (
  results: AsyncIterable<ReplayedRecordingResult>,
  versions: readonly [string, string],
): Promise<ReplayCounts> => {
  const counts = createCounts();
  await writeToOutput(`{"against":${JSON.stringify(versions[0])},"with":${JSON.stringify(versions[1])},"reviews":[`);
  let separator = "\n";
  for await (const result of results) {
    countResult(counts, result);
    // Nothing differs, or neither version evaluates the rule.
    if (result.state === "alike" || result.state === "neither") continue;
    const printed =
      result.state === "unreadable"
        ? result
        : { ...result, answers: dropObjects(result), difference: computeResultHunks(result) };
    await writeToOutput(`${separator}${JSON.stringify(printed)}`);
    separator = ",\n";
  }
  await writeToOutput(`\n],"summary":${JSON.stringify(counts)}}\n`);
  return counts;
};

/** Returns the answers without objects. The printed diff shows how the objects differ, and hides values of Secrets. */
const dropObjects = ({ answers }: Exclude<ReplayedRecordingResult, { state: "unreadable" }>) =>
  answers.map((answer) => ("made" in answer ? { ...answer, made: { ...answer.made, object: undefined } } : answer));

/** Writes to standard output. Waits while the program that reads the output, such as `less`, doesn't read on. */
export const writeToOutput = async (text: string): Promise<void> => {
  if (!process.stdout.write(text)) await once(process.stdout, "drain");
};
