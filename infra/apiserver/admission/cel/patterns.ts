/**
 * Compiles the subset of RE2 that match conditions use; returns undefined for anything else. The compiled function
 * reports whether a text contains a match, in time that is linear in the length of the text for any expression.
 */
export const compilePattern = (source: string): ((text: string) => boolean) | undefined => {
  try {
    const states: State[] = [];
    const parser: Parser = { source, at: 0, states, depth: 0 };
    const accept = add(states, { kind: "accept" });
    const part = alternatives(parser);
    if (parser.at < source.length) return undefined;
    const start = part(accept);
    return (text) => runs(states, start, text);
  } catch {
    return undefined;
  }
};

type State =
  | { kind: "accept" }
  | { kind: "split"; next: number[] }
  | { kind: "start" | "end"; next: number }
  | { kind: "one"; matchHook: (character: number) => boolean; next: number };

/** Adds the states of a part that come before the state `next`; returns the number of the first one. */
type Part = (next: number) => number;

interface Parser {
  source: string;
  at: number;
  states: State[];
  depth: number;
}

const most = { states: 20_000, repeats: 1000, depth: 100 };

const add = (states: State[], state: State): number => {
  if (states.length >= most.states) throw new Error("it is too large");
  return states.push(state) - 1;
};

const alternatives = (parser: Parser): Part => {
  parser.depth += 1;
  if (parser.depth > most.depth) throw new Error("it is too deep");
  const parts = [sequence(parser)];
  while (parser.source[parser.at] === "|") {
    parser.at += 1;
    parts.push(sequence(parser));
  }
  parser.depth -= 1;
  const [only] = parts;
  if (parts.length === 1 && only) return only;
  return (next) => add(parser.states, { kind: "split", next: parts.map((part) => part(next)) });
};

const sequence = (parser: Parser): Part => {
  const parts: Part[] = [];
  for (
    let next = parser.source[parser.at];
    next !== undefined && next !== "|" && next !== ")";
    next = parser.source[parser.at]
  )
    parts.push(repeated(parser, atom(parser)));
  return (next) => parts.reduceRight((after, part) => part(after), next);
};

const repeated = (parser: Parser, part: Part): Part => {
  const found = /^(?:[*+?]|\{(\d+)(,?)(\d*)\})\??/.exec(parser.source.slice(parser.at, parser.at + 20));
  if (!found) return part;
  const [text, least = "", comma, greatest = ""] = found;
  parser.at += text.length;
  if (/^[*+?{]/.test(parser.source.slice(parser.at))) throw new Error("nothing repeats what repeats");
  const min = text[0] === "{" ? Number(least) : text[0] === "+" ? 1 : 0;
  const max =
    text[0] === "{" ? (comma ? (greatest ? Number(greatest) : Infinity) : min) : text[0] === "?" ? 1 : Infinity;
  if (min > most.repeats || (max !== Infinity && max > most.repeats) || min > max)
    throw new Error("it repeats too often");
  const { states } = parser;
  return (next) => {
    let after = next;
    if (max === Infinity) {
      const loop = add(states, { kind: "split", next: [next] });
      const body = part(loop);
      (states[loop] as { next: number[] }).next.push(body);
      after = loop;
    } else
      for (let count = min; count < max; count++) after = add(states, { kind: "split", next: [next, part(after)] });
    for (let count = 0; count < min; count++) after = part(after);
    return after;
  };
};

const atom = (parser: Parser): Part => {
  const { source, states } = parser;
  const character = String.fromCodePoint(source.codePointAt(parser.at) ?? 0);
  parser.at += character.length;
  const one = (matchHook: (code: number) => boolean): Part => {
    return (next) => add(states, { kind: "one", matchHook, next });
  };
  if (character === "(") {
    if (source[parser.at] === "?" && source.slice(parser.at, parser.at + 2) !== "?:")
      throw new Error("flags aren't known");
    if (source[parser.at] === "?") parser.at += 2;
    const inner = alternatives(parser);
    if (source[parser.at] !== ")") throw new Error("a group isn't closed");
    parser.at += 1;
    return inner;
  }
  if (character === "^") return (next) => add(states, { kind: "start", next });
  if (character === "$") return (next) => add(states, { kind: "end", next });
  if (character === ".") return one((code) => code !== 10);
  if (character === "[") return one(classOf(parser));
  if (character === "\\") return one(escaped(parser));
  if (/[*+?{}\])]/.test(character)) throw new Error("it stands for something");
  const wanted = character.codePointAt(0);
  return one((code) => code === wanted);
};

const ranges: Record<string, [number, number][]> = {
  d: [[48, 57]],
  w: [
    [48, 57],
    [65, 90],
    [95, 95],
    [97, 122],
  ],
  s: [
    [9, 10],
    [12, 13],
    [32, 32],
  ],
};

const isIn = (list: [number, number][], code: number) => list.some(([from, to]) => code >= from && code <= to);

const escaped = (parser: Parser): ((code: number) => boolean) => {
  const character = parser.source[parser.at] ?? "";
  parser.at += 1;
  const list = ranges[character.toLowerCase()];
  if (/[dws]/i.test(character) && list)
    return /[a-z]/.test(character) ? (code) => isIn(list, code) : (code) => !isIn(list, code);
  const code = literal(character);
  return (other) => other === code;
};

const literal = (character: string): number => {
  const found = { n: 10, t: 9, r: 13 }[character];
  if (found !== undefined) return found;
  if (!/^[!-/:-@[-`{-~]$/.test(character)) throw new Error("it may mean something");
  return character.charCodeAt(0);
};

const classOf = (parser: Parser): ((code: number) => boolean) => {
  const { source } = parser;
  const isNegated = source[parser.at] === "^";
  if (isNegated) parser.at += 1;
  const list: [number, number][] = [];
  const member = (): number | undefined => {
    const character = String.fromCodePoint(source.codePointAt(parser.at) ?? 0);
    if (parser.at >= source.length || character === "[") throw new Error("it isn't closed");
    parser.at += character.length;
    if (character !== "\\") return character.codePointAt(0);
    const next = source[parser.at] ?? "";
    parser.at += 1;
    const known = ranges[next];
    if (!known || !/[dws]/.test(next)) return literal(next);
    list.push(...known);
    return undefined;
  };
  for (let isFirst = true; isFirst || source[parser.at] !== "]"; isFirst = false) {
    const from = member();
    if (from === undefined) continue;
    if (source[parser.at] !== "-" || source[parser.at + 1] === "]") {
      list.push([from, from]);
      continue;
    }
    parser.at += 1;
    const to = member();
    if (to === undefined || to < from) throw new Error("it is no range");
    list.push([from, to]);
  }
  parser.at += 1;
  return (code) => isIn(list, code) !== isNegated;
};

/** Follows all alternatives in parallel, one character at a time, so that it never backtracks. */
const runs = (states: readonly State[], start: number, text: string): boolean => {
  const characters = [...text];
  let active: number[] = [];
  for (let position = 0; position <= characters.length; position++) {
    const reached = new Set<number>();
    const pending = [...active, start];
    for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
      if (reached.has(next)) continue;
      reached.add(next);
      const state = states[next];
      if (state?.kind === "accept") return true;
      if (state?.kind === "split") pending.push(...state.next);
      if (state?.kind === "start" && position === 0) pending.push(state.next);
      if (state?.kind === "end" && position === characters.length) pending.push(state.next);
    }
    const code = characters[position]?.codePointAt(0);
    if (code === undefined) return false;
    active = [];
    for (const one of reached) {
      const state = states[one];
      if (state?.kind === "one" && state.matchHook(code)) active.push(state.next);
    }
  }
  return false;
};
