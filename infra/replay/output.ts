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

/** Prints a replay's results rule by rule: at most `most`, and each reason for a missing answer only once. */
export const writeReplayText = async (
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
export const writeReplayJson = async (
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
export const writeToOutput = async (text: string): Promise<void> => {
  if (!process.stdout.write(text)) await once(process.stdout, "drain");
};
