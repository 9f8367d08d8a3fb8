import { generatedSuffix } from "#infra/apiserver/admission/server-objects.ts";
import { exactJson } from "#lib/exact-json.ts";
import { getOwn } from "#lib/json.ts";
import { formatCount } from "../../cli/progress.ts";
import { sanitizeTerminalText, toOneLine } from "../../cli/terminal.ts";
import { computeHunks, type DiffHunk, type DiffLine, type ObjectAfterRule } from "../../diff/difference.ts";
import { isShownChange } from "../evaluation/findings.ts";
import {
  type CheckVerdict,
  type Denial,
  formatObjectName,
  type ObjectCheckResult,
  type ObjectEvaluation,
} from "../evaluation/object-evaluation.ts";
import type { CheckReportWriter, CheckSummary, InputReadFailure } from "./check-report.ts";

const colours = { red: 31, green: 32, yellow: 33, cyan: 36, bold: 1, dim: 2 } as const;
type Colour = keyof typeof colours;

export type Paint = (colour: Colour, text: string) => string;

export const isColoured = ({ isTTY }: { isTTY?: boolean }, { NO_COLOR, TERM }: NodeJS.ProcessEnv): boolean =>
  isTTY === true && !NO_COLOR && TERM !== "dumb";

/** Returns a function that colours a text for terminals, or leaves it as it is. */
export const createPainter = (isColoured: boolean): Paint =>
  isColoured ? (colour, text) => `\u001b[${colours[colour]}m${text}\u001b[0m` : (_, text) => text;

const verdicts: Record<CheckVerdict, [Colour, string]> = {
  allowed: ["green", "allowed"],
  changed: ["cyan", "changed"],
  denied: ["red", "denied"],
  undecided: ["yellow", "undecided"],
};

const formatHead = ({ checked }: ObjectEvaluation, paint: Paint): string => {
  const [colour, word] = verdicts[checked.verdict];
  const place = checked.file === undefined ? [] : [paint("dim", sanitizeTerminalText(formatPlace(checked)))];
  return `${[paint("bold", sanitizeTerminalText(formatObjectName(checked))), ...place, paint(colour, word)].join(" ")}\n`;
};

/** Formats what is found of an object. `isWhole` adds passed rules and, of a denied object, what is undecided. */
const formatFindings = (evaluation: ObjectEvaluation, paint: Paint, { isWhole }: { isWhole: boolean }): string => {
  const { checked, audit } = evaluation;
  const { noRule, denials, warnings, undecided, passed, changes, exempt = [] } = checked;
  const changing = changes.map(({ rule }) => rule);
  const formatLine = (colour: Colour, word: string, rest: string) => `  ${paint(colour, word)} ${rest}\n`;
  const formatNames = (colour: Colour, word: string, names: Iterable<string>) => {
    const all = [...new Set(names)];
    return all.length === 0 ? "" : formatLine(colour, word, sanitizeTerminalText(all.join(", ")));
  };
  return [
    noRule ? formatLine("dim", "no rule", "concerns its kind, which is not known here") : "",
    ...denials.map((denial) => formatLine("red", "denied by", formatDenialLine(denial, checked, paint))),
    ...(isWhole || denials.length === 0
      ? undecided.map((sentence) => formatLine("yellow", "undecided", toOneLine(sentence)))
      : []),
    ...warnings.map(({ rule, text }) =>
      formatLine("yellow", "warning of", `${sanitizeTerminalText(rule)}: ${toOneLine(text)}`),
    ),
    ...exempt.map(({ rule, text }) =>
      formatLine("yellow", "exempt from", `${sanitizeTerminalText(rule)} ${toOneLine(text)}`),
    ),
    ...describeWouldBeDecisions(audit).map((text) => formatLine("dim", "for the audit log,", toOneLine(text))),
    formatNames("cyan", "changed by", changing),
    isWhole ? formatNames("green", "passed", passed) : "",
    ...diffEvaluation(evaluation).map((hunk) => formatHunk(hunk, paint)),
  ].join("");
};

const formatPlace = ({ file = "", line = 1 }: Pick<ObjectCheckResult, "file" | "line">) =>
  `${file === "-" ? "standard input" : file}:${line}`;

/** Returns the line of a refusal, such as "pod-security: must not be privileged a.yaml:3". */
const formatDenialLine = (
  { rule, message, suggestion, ...at }: Denial,
  { file, line }: ObjectCheckResult,
  paint: Paint,
): string => {
  const isElsewhere = at.line !== undefined && at.line !== line;
  const place = isElsewhere ? ` ${paint("dim", sanitizeTerminalText(formatPlace({ file, line: at.line })))}` : "";
  const advice = suggestion === undefined ? "" : `\n    ${paint("cyan", "to fix it,")} ${toOneLine(suggestion)}`;
  return `${paint("bold", sanitizeTerminalText(rule))}: ${toOneLine(message)}${place}${advice}`;
};

const describeWouldBeDecisions = (audit: Record<string, string>): string[] =>
  Object.entries(audit).flatMap(([key, text]) => {
    const [, rule, verb] = /^(.+)\.postern\.dev\/(?:.*\.)?would-(deny|change)$/.exec(key) ?? [];
    return rule === undefined ? [] : [`${rule} would ${verb}: ${text}`];
  });

/**
 * Returns the diff between an object before and after its mutating rules and policies; each line names the last one
 * that changed it. The diff is computed once for all reports.
 */
export const diffEvaluation = (evaluation: ObjectEvaluation): DiffHunk[] => {
  const hunks = computedHunks.get(evaluation) ?? computeDifference(evaluation);
  computedHunks.set(evaluation, hunks);
  return hunks;
};

const computedHunks = new WeakMap<ObjectEvaluation, DiffHunk[]>();

/** Returns what rules changed in an object, as hunks of a diff. */
const computeDifference = ({ checked, steps, before, after }: ObjectEvaluation): DiffHunk[] => {
  if (checked.changes.length === 0) return [];
  // `checked.changes` has an element for each of the shown changes, in the same order.
  const states = steps
    .filter(isShownChange)
    .map((step, index): ObjectAfterRule => ({ rule: checked.changes[index]?.rule ?? step.hook, after: step.after }));
  const isOneVersion = states.every((state) => getOwn(state.after, "apiVersion") === getOwn(before, "apiVersion"));
  // Objects in different API versions can't be compared line by line, so each changed line names all rules.
  const all = [...new Set(states.map(({ rule }) => rule))].join(", ");
  return computeHunks(before, isOneVersion ? states : [{ rule: all, after }]);
};

const signs: Record<DiffLine["sign"], Colour> = { " ": "dim", "-": "red", "+": "green" };

/** Returns a hunk in the form of `diff -u`, with the names of the rules that made the changes. */
export const formatHunk = ({ old, now, lines }: DiffHunk, paint: Paint): string => {
  const countWithout = (sign: string) => lines.filter((line) => line.sign !== sign).length;
  const rules = [...new Set(lines.flatMap(({ rule = [] }) => rule))];
  const head = `@@ -${old},${countWithout("+")} +${now},${countWithout("-")} @@ ${sanitizeTerminalText(rules.join(", "))}`;
  const body = lines.map(({ sign, text, rule }) => {
    const whose = rules.length > 1 && rule !== undefined ? paint("dim", `  # ${sanitizeTerminalText(rule)}`) : "";
    return `    ${paint(signs[sign], `${sign} ${sanitizeTerminalText(text)}`.trimEnd())}${whose}\n`;
  });
  return `    ${paint("cyan", head)}\n${body.join("")}`;
};

/** Creates a summary of check results in which every count is 0. */
export const createSummary = (): CheckSummary => {
  return { objects: 0, allowed: 0, changed: 0, denied: 0, undecided: 0, noRule: 0, warnings: 0, faults: 0 };
};

export const addToSummary = (summary: CheckSummary, { verdict, noRule, warnings }: ObjectCheckResult): void => {
  summary.objects++;
  summary[verdict]++;
  if (noRule) summary.noRule++;
  summary.warnings += warnings.length;
};

/** Returns the last line of a report, such as "3 objects: 2 allowed, 1 denied". */
const formatSummary = (summary: CheckSummary, paint: Paint): string => {
  const parts = (Object.keys(verdicts) as CheckVerdict[])
    .filter((verdict) => summary[verdict] > 0)
    .map((verdict) => {
      const unruled = verdict === "allowed" && summary.noRule > 0 ? ` (${summary.noRule} no rule)` : "";
      const fresh = verdict === "denied" && summary.newlyDenied !== undefined ? ` (${summary.newlyDenied} new)` : "";
      return paint(verdicts[verdict][0], `${summary[verdict]} ${verdicts[verdict][1]}${unruled}${fresh}`);
    });
  const more = [
    ...(summary.warnings > 0 ? [formatCount(summary.warnings, "warning")] : []),
    ...(summary.faults > 0 ? [paint("red", `${summary.faults} could not be read`)] : []),
  ];
  const all = [...parts, ...more].join(", ");
  return `${formatCount(summary.objects, "object")}${all === "" ? "" : `: ${all}`}\n`;
};

/** Creates the text report of all objects, as they come. */
export const createWholeTextReport = (paint: Paint): CheckReportWriter => ({
  add: (evaluation) => formatHead(evaluation, paint) + formatFindings(evaluation, paint, { isWhole: true }),
  end: ({ summary }) => [formatSummary(summary, paint)],
});

/** Objects with equal findings. */
interface FindingGroup {
  verdict: CheckVerdict;
  /** The lines that name the first few of these objects, such as `Pod shop/web a.yaml:3 denied`. */
  heads: string[];
  /** The number of other objects, which are not named. */
  unnamed: number;
  findings: string;
}

/** Objects with equal findings form a group. At most this many of them are named. */
const mostNamed = 3;
/** The most groups that are kept in memory. A cluster may have any number of objects. */
const mostGroups = 5000;

/** Creates the text report of findings: those that are equal but for the object's name and place come together. */
export const createTextReport = (paint: Paint): CheckReportWriter => {
  const groups = new Map<string, FindingGroup>();
  const writeGroups = () => {
    const order: CheckVerdict[] = ["denied", "undecided", "changed", "allowed"];
    const sorted = [...groups.values()].sort((one, other) => order.indexOf(one.verdict) - order.indexOf(other.verdict));
    groups.clear();
    return sorted.map(({ heads, unnamed, findings }) => {
      const rest = unnamed > 0 ? `… and ${unnamed} more; --all lists them\n` : "";
      return `${heads.join("")}${rest}${findings}`;
    });
  };
  return {
    add: (evaluation) => {
      if (!hasFindings(evaluation)) return "";
      const key = buildGroupKey(evaluation);
      let group = groups.get(key);
      if (group === undefined) {
        const { verdict } = evaluation.checked;
        const findings = formatFindings(evaluation, paint, { isWhole: false });
        group = { verdict, heads: [], unnamed: 0, findings };
        groups.set(key, group);
      }
      if (group.heads.length < mostNamed) group.heads.push(formatHead(evaluation, paint));
      else group.unnamed++;
      return groups.size > mostGroups ? writeGroups().join("") : "";
    },
    end: ({ summary }) => [...writeGroups(), formatSummary(summary, paint)],
  };
};

/** Lists what can't be read. Of inputs with the same fault, only some are named, unless `listsAll` is true. */
export const formatUnread = (unreadableInputs: readonly InputReadFailure[], listsAll: boolean): string[] =>
  [...Map.groupBy(unreadableInputs, ({ fault }) => getOwn(fault, "sentence")).values()].flatMap((alike) => {
    const more = listsAll ? 0 : Math.max(0, alike.length - mostNamed);
    const named = alike.slice(0, alike.length - more).map(({ text }) => text);
    return more > 0 ? [...named, `… and ${more} more like these; --all lists them`] : named;
  });

/** Returns a text that is equal for objects with equal findings, whatever their names are. */
const buildGroupKey = ({ checked, audit }: ObjectEvaluation): string => {
  const { verdict, denials, warnings, undecided, changes, exempt, name } = checked;
  const findings = denials.map(({ rule, message, suggestion }) => [rule, message, suggestion]);
  // Of a denied object, reports don't show what is undecided.
  const shownUndecided = findings.length === 0 ? undecided : [];
  const key = exactJson.stringify([
    verdict,
    findings,
    warnings,
    shownUndecided,
    changes,
    describeWouldBeDecisions(audit),
    exempt,
  ]);
  // A name in quotes is replaced, for instance in `pods "web" is forbidden`.
  const names = name === "" ? [] : [name, `${name}${generatedSuffix}`];
  return names.reduce((text, one) => text.replaceAll(`\\"${one}\\"`, "the name"), key);
};

const hasFindings = ({ checked: { verdict, warnings, exempt }, audit }: ObjectEvaluation): boolean =>
  verdict !== "allowed" || warnings.length > 0 || exempt !== undefined || describeWouldBeDecisions(audit).length > 0;
