import { findOldIndexesOfLines } from "./alignment.ts";
import { hideSecretValues } from "./secret-values.ts";
import { formatYamlLines } from "./yaml-lines.ts";

/** A line of a diff; `rule` names the rule that added or removed it. */
export interface DiffLine {
  sign: " " | "-" | "+";
  text: string;
  rule?: string;
}

/** Changed lines and the lines around them. `old` and `now` are numbers of the first line in the old and new text. */
export interface DiffHunk {
  old: number;
  now: number;
  lines: DiffLine[];
}

/** A rule that changed an object, and the object after the rule's change. */
export interface ObjectAfterRule {
  rule: string;
  after: unknown;
}

/** A line of the changed object. It is either a line of the original text, with its index there, or a rule added it. */
interface AttributedLine {
  text: string;
  originalIndex?: number;
  rule?: string;
}

/** Returns the changed parts of an object that rules changed one after another. */
export const computeHunks = (before: unknown, stages: readonly ObjectAfterRule[]): DiffHunk[] =>
  groupHunks(computeDiffLines(before, stages));

/** Returns all lines of an object, and the lines that rules removed and added. */
export const computeDiffLines = (first: unknown, stages: readonly ObjectAfterRule[]): DiffLine[] => {
  const original = formatYamlLines(hideSecretValues(first));
  let oldTexts = original;
  let lines = original.map((text, originalIndex): AttributedLine => ({ text, originalIndex }));
  const removedBy = new Map<number, string>();
  for (const { rule, after } of stages) {
    const newTexts = formatYamlLines(hideSecretValues(after, first));
    const oldIndexes = findOldIndexesOfLines(oldTexts, newTexts);
    const keptIndexes = new Set(oldIndexes);
    for (const [index, { originalIndex }] of lines.entries())
      if (originalIndex !== undefined && !keptIndexes.has(index)) removedBy.set(originalIndex, rule);
    const oldLines = lines;
    // A line that this rule kept stays attributed as before. Other lines are attributed to the rule.
    lines = newTexts.map((text, index) => oldLines[oldIndexes[index] ?? -1] ?? { text, rule });
    oldTexts = newTexts;
  }
  return interleaveLines(original, lines, removedBy);
};

/**
 * Merges kept, removed and added lines of a diff. `removedBy` maps the index of a removed line to the rule that removed
 * it. Removed lines stand before the lines that replace them.
 */
const interleaveLines = (
  original: readonly string[],
  lines: readonly AttributedLine[],
  removedBy: ReadonlyMap<number, string>,
): DiffLine[] => {
  const merged: DiffLine[] = [];
  const pendingAdded: DiffLine[] = [];
  let next = 0;
  /** Adds the removed lines before the original line `end`, then the pending added lines. */
  const addChangesBefore = (end: number) => {
    for (; next < end; next++)
      merged.push({ sign: "-", text: original[next] ?? "", ...toRuleField(removedBy.get(next)) });
    for (const line of pendingAdded.splice(0)) merged.push(line);
  };
  for (const { text, originalIndex, rule } of lines) {
    if (originalIndex === undefined) {
      pendingAdded.push({ sign: "+", text, ...toRuleField(rule) });
      continue;
    }
    addChangesBefore(originalIndex);
    merged.push({ sign: " ", text });
    next = originalIndex + 1;
  }
  addChangesBefore(original.length);
  return merged;
};

const toRuleField = (rule: string | undefined) => (rule === undefined ? {} : { rule });

const contextLines = 3;

/** Returns the changed lines, each with up to three lines before and after it. */
const groupHunks = (allLines: readonly DiffLine[]): DiffHunk[] => {
  const hunks: DiffHunk[] = [];
  // The numbers of the next line, in the old text and in the new one.
  let [old, now] = [1, 1];
  let isInHunk = false;
  const shownIndexes = new Set<number>();
  for (const [index, { sign }] of allLines.entries())
    if (sign !== " ")
      for (let near = index - contextLines; near <= index + contextLines; near++) shownIndexes.add(near);
  for (const [index, line] of allLines.entries()) {
    const isShown = shownIndexes.has(index);
    if (isShown && !isInHunk) hunks.push({ old, now, lines: [] });
    if (isShown) hunks.at(-1)?.lines.push(line);
    isInHunk = isShown;
    if (line.sign !== "+") old++;
    if (line.sign !== "-") now++;
  }
  return hunks;
};
