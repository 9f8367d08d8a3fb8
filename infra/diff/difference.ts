import { getOwn, isMap } from "#lib/json.ts";
import { alignment } from "./alignment.ts";
import { linesOf } from "./yaml-lines.ts";

/** `rule` is the rule that added or removed the line. */
export interface Line {
  sign: " " | "-" | "+";
  text: string;
  rule?: string;
}

/** Changed lines with their context; `old` and `now` are the numbers of the first line. */
export interface Hunk {
  old: number;
  now: number;
  lines: Line[];
}

export interface Stage {
  rule: string;
  after: unknown;
}

/** `from` is the line's index in the original text, `rule` the rule that added it. */
interface Blamed {
  text: string;
  from?: number;
  rule?: string;
}

export const difference = (before: unknown, stages: readonly Stage[]): Hunk[] => {
  const shown = veil(before);
  const original = linesOf(shown(before));
  let texts = original;
  let lines = original.map((text, from): Blamed => ({ text, from }));
  const gone = new Map<number, string>();
  for (const { rule, after } of stages) {
    const next = linesOf(shown(after));
    const old = alignment(texts, next);
    const staying = new Set(old);
    for (const [index, { from }] of lines.entries())
      if (from !== undefined && !staying.has(index)) gone.set(from, rule);
    const before = lines;
    lines = next.map((text, index) => before[old[index] ?? -1] ?? { text, rule });
    texts = next;
  }
  return hunks(together(original, lines, gone));
};

/** Removed lines stand before the lines that replace them. */
const together = (original: readonly string[], lines: readonly Blamed[], gone: ReadonlyMap<number, string>): Line[] => {
  const all: Line[] = [];
  const added: Line[] = [];
  let at = 0;
  const flush = (until: number) => {
    for (; at < until; at++) all.push({ sign: "-", text: original[at] ?? "", ...ruled(gone.get(at)) });
    for (const line of added.splice(0)) all.push(line);
  };
  for (const { text, from, rule } of lines) {
    if (from === undefined) {
      added.push({ sign: "+", text, ...ruled(rule) });
      continue;
    }
    flush(from);
    all.push({ sign: " ", text });
    at = from + 1;
  }
  flush(original.length);
  return all;
};

const ruled = (rule: string | undefined) => (rule === undefined ? {} : { rule });

const around = 3;

const hunks = (all: readonly Line[]): Hunk[] => {
  const found: Hunk[] = [];
  let [old, now, open] = [1, 1, -1];
  const changed = all.flatMap(({ sign }, index) => (sign === " " ? [] : [index]));
  const isNear = new Set(
    changed.flatMap((index) => Array.from({ length: 2 * around + 1 }, (_, step) => index - around + step)),
  );
  for (const [index, line] of all.entries()) {
    if (isNear.has(index)) {
      if (open < 0) found.push({ old, now, lines: [] });
      open = index;
      found.at(-1)?.lines.push(line);
    } else open = -1;
    if (line.sign !== "+") old++;
    if (line.sign !== "-") now++;
  }
  return found;
};

/** Hides the values of a Secret; shows only whether they changed. */
const veil = (before: unknown): ((value: unknown) => unknown) => {
  if (getOwn(before, "kind") !== "Secret") return (value) => value;
  const hide = (value: unknown, place: string) => {
    const held = getOwn(value, place);
    if (!isMap(held)) return {};
    const was = getOwn(before, place);
    const hidden = Object.entries(held).map(([key, text]) => [key, getOwn(was, key) === text ? "***" : "*** (other)"]);
    return { [place]: Object.fromEntries(hidden) };
  };
  return (value) => (isMap(value) ? { ...value, ...hide(value, "data"), ...hide(value, "stringData") } : value);
};
