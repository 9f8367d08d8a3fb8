import { formatHunk, type Paint } from "../check/reports/format.ts";
import { sanitizeTerminalText, toOneLine } from "../cli/terminal.ts";
import { computeHunks, type DiffHunk } from "../diff/difference.ts";
import type { DecisionAspect, ReplayDecision, ReplayedReviewOutcome } from "./answers.ts";
import type { ReplayComparisonState, ReplayedRecordingResult } from "./replay.ts";

/** The number of results in each state. `redacted` counts the results of recordings whose free text is redacted. */
export type ReplayCounts = Record<ReplayComparisonState | "unreadable" | "redacted", number>;

/** Returns counts of 0 for all results of a replay. */
export const createCounts = (): ReplayCounts => ({
  alike: 0,
  differs: 0,
  neither: 0, // Neither of the two versions that are compared evaluates the recorded rule.
  unplayed: 0,
  unreadable: 0,
  redacted: 0,
});

/** Adds the result of one replayed recording to the counts of results by state. */
export const countResult = (counts: ReplayCounts, result: ReplayedRecordingResult): void => {
  counts[result.state]++;
  if (result.state !== "unreadable" && result.redacted) counts.redacted++;
};

/** Returns the result of replaying one review as text. The text is empty if the answers don't differ. */
export const formatReplayResult = (
  result: ReplayedRecordingResult,
  names: readonly [string, string],
  paint: Paint,
): string => {
  const place = paint(
    "dim",
    sanitizeTerminalText(`${result.file === "-" ? "standard input" : result.file}:${result.line}`),
  );
  if (result.state === "unreadable") return `${place} ${paint("yellow", toOneLine(result.sentence))}\n`;
  // In the state "neither", neither version evaluates the rule.
  if (result.state === "alike" || result.state === "neither") return "";
  const { name, differs, answers } = result;
  const title = `  ${paint("bold", toOneLine(name))} ${place}\n`;
  if (result.state === "unplayed") {
    const faults = answers.flatMap((answer, side) => ("fault" in answer ? [`by ${names[side]}: ${answer.fault}`] : []));
    return `${title}    ${paint("yellow", "could not be replayed")} ${toOneLine([...new Set(faults)].join("; "))}\n`;
  }
  const lines = answers.map((answer, side) => formatAnswer(answer, differs, String(names[side]), side === 0, paint));
  return [title, ...lines, ...computeResultHunks(result).map((hunk) => formatHunk(hunk, paint))].join("");
};

/** The parts of an answer that its verdict line shows. */
const verdictLineAspects: DecisionAspect[] = ["verdict", "message", "code", "reason", "details", "mode"];

/** Returns the lines of a version's answer that differ from the other version's, or all if only one answered. */
const formatAnswer = (
  answer: ReplayedReviewOutcome,
  differs: readonly DecisionAspect[],
  side: string,
  isLeft: boolean,
  paint: Paint,
): string => {
  const formatLine = (text: string) =>
    `    ${paint(isLeft ? "red" : "green", `${isLeft ? "-" : "+"} ${toOneLine(text)}`)}\n`;
  if ("absent" in answer) return formatLine(`${side} ${answer.absent}`);
  if ("fault" in answer) return formatLine(`${side}: ${answer.fault}`);
  const { made, mode } = answer;
  const { warnings, audit } = made;
  // `differs` is empty if the other version gave no answer to compare with: this answer is shown in full.
  const isShownInFull = differs.length === 0;
  const isModeWorthShowing = mode !== "enforce" && made.verdict !== "allowed";
  const showsMode = mode !== undefined && (isShownInFull ? isModeWorthShowing : differs.includes("mode"));
  const showsVerdict = isShownInFull || verdictLineAspects.some((aspect) => differs.includes(aspect));
  const verdict = `${side}: ${formatVerdict(made, differs)}${showsMode ? `, in mode ${mode}` : ""}`;
  const doWarningsDiffer = differs.includes("warnings");
  const shownWarnings = doWarningsDiffer && warnings.length === 0 ? ["nothing"] : warnings;
  const showsAudit = differs.includes("audit") || (isShownInFull && Object.keys(audit).length > 0);
  return [
    ...(showsVerdict ? [verdict] : []),
    ...(isShownInFull || doWarningsDiffer ? shownWarnings.map((warning) => `${side} warns of ${warning}`) : []),
    ...(showsAudit ? [`${side} tells the audit log ${JSON.stringify(audit)}`] : []),
  ]
    .map(formatLine)
    .join("");
};

/** Returns for instance "allowed" or "denied: must have a label (403 Forbidden)". */
const formatVerdict = (
  { verdict, message, code, reason, details }: ReplayDecision,
  differs: readonly DecisionAspect[],
): string => {
  if (verdict !== "denied") return verdict;
  const detailsText = differs.includes("details") ? ` ${JSON.stringify(details ?? {})}` : "";
  return `denied: ${message} (${[code, reason].filter(Boolean).join(" ")})${detailsText}`;
};

/** Returns the diff between the object as one version changes it, and as the other version does. Empty if equal. */
export const computeResultHunks = (result: Exclude<ReplayedRecordingResult, { state: "unreadable" }>): DiffHunk[] => {
  const [left, right] = result.answers;
  if (!result.differs.includes("object") || !("made" in left) || !("made" in right)) return [];
  return computeHunks(left.made.object, [{ rule: result.rule, after: right.made.object }]);
};

const formatNumber = (count: number) => count.toLocaleString("en-US");

/** Returns the last line of a replay, such as "3 reviews: 2 alike, 1 differs". */
export const formatReplaySummary = (counts: ReplayCounts): string => {
  const { alike, differs, neither, unplayed, unreadable, redacted } = counts;
  const total = alike + differs + neither + unplayed;
  const parts = [
    `${formatNumber(alike)} alike`,
    ...(differs > 0 ? [`${formatNumber(differs)} ${differs === 1 ? "differs" : "differ"}`] : []),
    ...(neither > 0 ? [`${formatNumber(neither)} that neither version evaluates`] : []),
    ...(unplayed > 0 ? [`${formatNumber(unplayed)} could not be replayed`] : []),
  ];
  const unreadableText = unreadable > 0 ? `; ${formatNumber(unreadable)} could not be read` : "";
  const redactedText =
    redacted > 0 ? `; ${formatNumber(redacted)} evaluated on placeholders, because free text isn't recorded` : "";
  return `${formatNumber(total)} ${total === 1 ? "review" : "reviews"}: ${parts.join(", ")}${unreadableText}${redactedText}\n`;
};
