import { isMap, own } from "#lib/json.ts";
import { alignment } from "./alignment.ts";
import { linesOf } from "./yaml-lines.ts";

/** A line of a difference: as it was and is, gone, or new; of a change, whose it is. */
export interface Line {
  sign: " " | "-" | "+";
  text: string;
  rule?: string;
}

/** Lines that belong together, with what stands around them, and where they begin. */
export interface Hunk {
  old: number;
  now: number;
  lines: Line[];
}

/** One step of a change: who made it, and what it left. */
export interface Stage {
  rule: string;
  after: unknown;
}

/** A line on its way: whose it is, or where it was in the beginning. */
interface Blamed {
  text: string;
  from?: number;
  rule?: string;
}

/** What all stages together changed, and which of them changed each line last. */
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

/** What is gone stands before what came in its place. */
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

/** So many lines around a change are shown. */
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

/** What a Secret holds is shown to nobody; only that it isn't what it was. */
const veil = (before: unknown): ((value: unknown) => unknown) => {
  if (own(before, "kind") !== "Secret") return (value) => value;
  const hide = (value: unknown, place: string) => {
    const held = own(value, place);
    if (!isMap(held)) return {};
    const was = own(before, place);
    const hidden = Object.entries(held).map(([key, text]) => [key, own(was, key) === text ? "***" : "*** (other)"]);
    return { [place]: Object.fromEntries(hidden) };
  };
  return (value) => (isMap(value) ? { ...value, ...hide(value, "data"), ...hide(value, "stringData") } : value);
};
