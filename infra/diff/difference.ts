import { findOldIndexesOfLines } from "./alignment.ts";
import { hideSecretValues } from "./secret-values.ts";
import { formatYamlLines } from "./yaml-lines.ts";

/** A line of a diff; `rule` names the rule that added or removed it. */
export interface DiffLine {
  sign: " " | "-" | "+";
  text: string;
  rule?: string;
}

/** Changed lines with their context; `old` and `now` are the line numbers of the first in the old and new text. */
export interface DiffHunk {
  old: number;
  now: number;
  lines: DiffLine[];
}

/** A rule that changed an object, and the object after this change. */
export interface ObjectAfterRule {
  rule: string;
  after: unknown;
}

/**
 * A line of the changed object: `from` is the line's index in the original text, `rule` the rule that added the line.
 */
interface AttributedLine {
  text: string;
  from?: number;
  rule?: string;
}

export const computeHunks = (before: unknown, stages: readonly ObjectAfterRule[]): DiffHunk[] =>
  groupHunks(computeDiffLines(before, stages));

/** Returns all lines of an object, with those that the rules removed and added. */
export const computeDiffLines = (first: unknown, stages: readonly ObjectAfterRule[]): DiffLine[] => {
  const original = formatYamlLines(hideSecretValues(first));
  let texts = original;
  let lines = original.map((text, from): AttributedLine => ({ text, from }));
  const gone = new Map<number, string>();
  for (const { rule, after } of stages) {
    const next = formatYamlLines(hideSecretValues(after, first));
    const old = findOldIndexesOfLines(texts, next);
    const staying = new Set(old);
    for (const [index, { from }] of lines.entries())
      if (from !== undefined && !staying.has(index)) gone.set(from, rule);
    const before = lines;
    lines = next.map((text, index) => before[old[index] ?? -1] ?? { text, rule });
    texts = next;
  }
  return interleaveLines(original, lines, gone);
};

/** Merges kept, removed and added lines of a diff. Removed lines stand before the lines that replace them. */
const interleaveLines = (
  original: readonly string[],
  lines: readonly AttributedLine[],
  gone: ReadonlyMap<number, string>,
): DiffLine[] => {
  const all: DiffLine[] = [];
  const added: DiffLine[] = [];
  let at = 0;
  const flush = (until: number) => {
    for (; at < until; at++) all.push({ sign: "-", text: original[at] ?? "", ...toRuleField(gone.get(at)) });
    for (const line of added.splice(0)) all.push(line);
  };
  for (const { text, from, rule } of lines) {
    if (from === undefined) {
      added.push({ sign: "+", text, ...toRuleField(rule) });
      continue;
    }
    flush(from);
    all.push({ sign: " ", text });
    at = from + 1;
  }
  flush(original.length);
  return all;
};

const toRuleField = (rule: string | undefined) => (rule === undefined ? {} : { rule });

const contextLines = 3;

const groupHunks = (all: readonly DiffLine[]): DiffHunk[] => {
  const found: DiffHunk[] = [];
  // The numbers of the next line, in the old text and in the new one.
  let [old, now] = [1, 1];
  let isInHunk = false;
  const shownIndexes = new Set<number>();
  for (const [index, { sign }] of all.entries())
    if (sign !== " ")
      for (let near = index - contextLines; near <= index + contextLines; near++) shownIndexes.add(near);
  for (const [index, line] of all.entries()) {
    const isShown = shownIndexes.has(index);
    if (isShown && !isInHunk) found.push({ old, now, lines: [] });
    if (isShown) found.at(-1)?.lines.push(line);
    isInHunk = isShown;
    if (line.sign !== "+") old++;
    if (line.sign !== "-") now++;
  }
  return found;
};
