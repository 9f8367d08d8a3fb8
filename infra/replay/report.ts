import { hunkOf, type Paint } from "../check/reports/format.ts";
import { escapeControls, toOneLine } from "../cli/terminal.ts";
import { difference, type Hunk } from "../diff/difference.ts";
import type { Answer, Aspect, Made } from "./answers.ts";
import type { Result, State } from "./replay.ts";

/** The number of results per state; `redacted` counts those among them that were evaluated on placeholders. */
export type Counts = Record<State | "unreadable" | "redacted", number>;

export const noCounts = (): Counts => ({ alike: 0, differs: 0, neither: 0, unplayed: 0, unreadable: 0, redacted: 0 });

export const count = (counts: Counts, result: Result): void => {
  counts[result.state]++;
  if (result.state !== "unreadable" && result.redacted) counts.redacted++;
};

/** Returns a result as text; empty if there is no difference to show. */
export const toldOf = (result: Result, names: readonly [string, string], paint: Paint): string => {
  const place = paint("dim", escapeControls(`${result.file === "-" ? "standard input" : result.file}:${result.line}`));
  if (result.state === "unreadable") return `${place} ${paint("yellow", toOneLine(result.sentence))}\n`;
  if (result.state === "alike" || result.state === "neither") return "";
  const { name, differs, answers } = result;
  const head = `  ${paint("bold", toOneLine(name))} ${place}\n`;
  if (result.state === "unplayed") {
    const faults = answers.flatMap((answer, side) => ("fault" in answer ? [`by ${names[side]}: ${answer.fault}`] : []));
    return `${head}    ${paint("yellow", "could not be replayed")} ${toOneLine([...new Set(faults)].join("; "))}\n`;
  }
  const lines = answers.map((answer, side) => linesOf(answer, differs, String(names[side]), side === 0, paint));
  return [head, ...lines, ...hunksOf(result).map((hunk) => hunkOf(hunk, paint))].join("");
};

const verbal: Aspect[] = ["verdict", "message", "code", "reason", "details", "mode"];

const linesOf = (answer: Answer, differs: readonly Aspect[], side: string, isLeft: boolean, paint: Paint): string => {
  const line = (text: string) => `    ${paint(isLeft ? "red" : "green", `${isLeft ? "-" : "+"} ${toOneLine(text)}`)}\n`;
  if ("absent" in answer) return line(`${side} ${answer.absent}`);
  if ("fault" in answer) return line(`${side}: ${answer.fault}`);
  const { made, mode } = answer;
  const { warnings, audit } = made;
  // Without aspects that differ, the other side has no answer, and this one is written in full.
  const isWhole = differs.length === 0;
  const has = (...some: Aspect[]) => some.some((one) => differs.includes(one));
  const isTold = mode !== undefined && (isWhole ? mode !== "enforce" && made.verdict !== "allowed" : has("mode"));
  const verdict = `${side}: ${verdictOf(made, differs)}${isTold ? `, in mode ${mode}` : ""}`;
  const warned = has("warnings") && warnings.length === 0 ? ["nothing"] : warnings;
  const hasAudit = has("audit") || (isWhole && Object.keys(audit).length > 0);
  return [
    ...(isWhole || has(...verbal) ? [verdict] : []),
    ...(isWhole || has("warnings") ? warned.map((one) => `${side} warns of ${one}`) : []),
    ...(hasAudit ? [`${side} tells the audit log ${JSON.stringify(audit)}`] : []),
  ]
    .map(line)
    .join("");
};

const verdictOf = ({ verdict, message, code, reason, details }: Made, differs: readonly Aspect[]): string => {
  if (verdict !== "denied") return verdict;
  const more = differs.includes("details") ? ` ${JSON.stringify(details ?? {})}` : "";
  return `denied: ${message} (${[code, reason].filter(Boolean).join(" ")})${more}`;
};

export const hunksOf = (result: Exclude<Result, { state: "unreadable" }>): Hunk[] => {
  const [left, right] = result.answers;
  if (!result.differs.includes("object") || !("made" in left) || !("made" in right)) return [];
  return difference(left.made.object, [{ rule: result.rule, after: right.made.object }]);
};

const number = (count: number) => count.toLocaleString("en-US");

export const summaryLine = (counts: Counts): string => {
  const { alike, differs, neither, unplayed, unreadable, redacted } = counts;
  const all = alike + differs + neither + unplayed;
  const parts = [
    `${number(alike)} alike`,
    ...(differs > 0 ? [`${number(differs)} ${differs === 1 ? "differs" : "differ"}`] : []),
    ...(neither > 0 ? [`${number(neither)} that neither is asked about`] : []),
    ...(unplayed > 0 ? [`${number(unplayed)} could not be replayed`] : []),
  ];
  const unread = unreadable > 0 ? `; ${number(unreadable)} could not be read` : "";
  const blind = redacted > 0 ? `; ${number(redacted)} judged on placeholders, as free text isn't recorded` : "";
  return `${number(all)} ${all === 1 ? "review" : "reviews"}: ${parts.join(", ")}${unread}${blind}\n`;
};
