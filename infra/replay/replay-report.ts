import { formatHunk, type Paint } from "../check/reports/format.ts";
import { sanitizeTerminalText, toOneLine } from "../cli/terminal.ts";
import { computeHunks, type DiffHunk } from "../diff/difference.ts";
import type { DecisionAspect, ReplayDecision, ReplayedReviewOutcome } from "./answers.ts";
import type { ReplayComparisonState, ReplayedRecordingResult } from "./replay.ts";

/** The number of results per state; `redacted` counts those among them that were evaluated on placeholders. */
export type ReplayCounts = Record<ReplayComparisonState | "unreadable" | "redacted", number>;

export const createCounts = (): ReplayCounts => ({
  alike: 0,
  differs: 0,
  neither: 0,
  unplayed: 0,
  unreadable: 0,
  redacted: 0,
});

/** Adds the result of one replayed recording to the counts of results by state. */
export const countResult = (counts: ReplayCounts, result: ReplayedRecordingResult): void => {
  counts[result.state]++;
  if (result.state !== "unreadable" && result.redacted) counts.redacted++;
};

/** Returns the result of replaying one review as text; empty if there is no difference to show. */
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
  if (result.state === "alike" || result.state === "neither") return "";
  const { name, differs, answers } = result;
  const head = `  ${paint("bold", toOneLine(name))} ${place}\n`;
  if (result.state === "unplayed") {
    const faults = answers.flatMap((answer, side) => ("fault" in answer ? [`by ${names[side]}: ${answer.fault}`] : []));
    return `${head}    ${paint("yellow", "could not be replayed")} ${toOneLine([...new Set(faults)].join("; "))}\n`;
  }
  const lines = answers.map((answer, side) => formatAnswer(answer, differs, String(names[side]), side === 0, paint));
  return [head, ...lines, ...computeResultHunks(result).map((hunk) => formatHunk(hunk, paint))].join("");
};

const verbal: DecisionAspect[] = ["verdict", "message", "code", "reason", "details", "mode"];

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
  // An answer without a differing aspect is shown in full: the other side of the replay has no answer to compare.
  const isShownInFull = differs.length === 0;
  const has = (...some: DecisionAspect[]) => some.some((aspect) => differs.includes(aspect));
  const isTold = mode !== undefined && (isShownInFull ? mode !== "enforce" && made.verdict !== "allowed" : has("mode"));
  const verdict = `${side}: ${formatVerdict(made, differs)}${isTold ? `, in mode ${mode}` : ""}`;
  const warned = has("warnings") && warnings.length === 0 ? ["nothing"] : warnings;
  const hasAudit = has("audit") || (isShownInFull && Object.keys(audit).length > 0);
  return [
    ...(isShownInFull || has(...verbal) ? [verdict] : []),
    ...(isShownInFull || has("warnings") ? warned.map((warning) => `${side} warns of ${warning}`) : []),
    ...(hasAudit ? [`${side} tells the audit log ${JSON.stringify(audit)}`] : []),
  ]
    .map(formatLine)
    .join("");
};

const formatVerdict = (
  { verdict, message, code, reason, details }: ReplayDecision,
  differs: readonly DecisionAspect[],
): string => {
  if (verdict !== "denied") return verdict;
  const detailsText = differs.includes("details") ? ` ${JSON.stringify(details ?? {})}` : "";
  return `denied: ${message} (${[code, reason].filter(Boolean).join(" ")})${detailsText}`;
};

/** Returns the diff of the objects after both versions' changes; none if they are equal or weren't made. */
export const computeResultHunks = (result: Exclude<ReplayedRecordingResult, { state: "unreadable" }>): DiffHunk[] => {
  const [left, right] = result.answers;
  if (!result.differs.includes("object") || !("made" in left) || !("made" in right)) return [];
  return computeHunks(left.made.object, [{ rule: result.rule, after: right.made.object }]);
};

const formatNumber = (count: number) => count.toLocaleString("en-US");

export const formatReplaySummary = (counts: ReplayCounts): string => {
  const { alike, differs, neither, unplayed, unreadable, redacted } = counts;
  const all = alike + differs + neither + unplayed;
  const parts = [
    `${formatNumber(alike)} alike`,
    ...(differs > 0 ? [`${formatNumber(differs)} ${differs === 1 ? "differs" : "differ"}`] : []),
    ...(neither > 0 ? [`${formatNumber(neither)} that neither is asked about`] : []),
    ...(unplayed > 0 ? [`${formatNumber(unplayed)} could not be replayed`] : []),
  ];
  const unread = unreadable > 0 ? `; ${formatNumber(unreadable)} could not be read` : "";
  const blind =
    redacted > 0 ? `; ${formatNumber(redacted)} evaluated on placeholders, because free text isn't recorded` : "";
  return `${formatNumber(all)} ${all === 1 ? "review" : "reviews"}: ${parts.join(", ")}${unread}${blind}\n`;
};
