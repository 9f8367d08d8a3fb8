import { countTraversal, getActualSize } from "../cost.ts";
import { declareMethod, type Evaluate, type FunctionDeclaration } from "../functions.ts";
import { int, listOf, string } from "../types.ts";
import type { Value } from "../values.ts";
import { rewordErrors } from "./parsing.ts";
import { compileProgram, conditions, type Instruction, type PatternProgram } from "./regex-syntax.ts";

/** A regular expression in RE2's syntax. Searching takes time in proportion to the text. */
export interface Pattern {
  /** The number of instructions that it needs. */
  readonly size: number;
  /** Reports whether a part of a text matches. */
  test(text: string): boolean;
  /** Returns the first part of a text that matches; an empty text if there is none. */
  find(text: string): string;
  /** Returns the parts of a text that match, without overlaps. */
  findAll(text: string, limit?: number): string[];
}

// All ways to match advance together, one character at a time.

/** Returns the conditions that hold between two characters; -1 is the start or the end of the text. */
const findConditions = (before: number, after: number): number => {
  let found = isWord(before) === isWord(after) ? conditions.noBoundary : conditions.boundary;
  if (before === -1) found |= conditions.textStart | conditions.lineStart;
  if (before === 10) found |= conditions.lineStart;
  if (after === -1) found |= conditions.textEnd | conditions.lineEnd;
  if (after === 10) found |= conditions.lineEnd;
  return found;
};

const isWord = (code: number): boolean =>
  (code >= 97 && code <= 122) || (code >= 65 && code <= 90) || (code >= 48 && code <= 57) || code === 95;

/** The ways to match that are open at a position of the text, the preferred one first. */
class Ways {
  /** The instruction that reads the next character, for each way. */
  readonly instructions: Int32Array;
  /** Where each way began. */
  readonly starts: Int32Array;
  count = 0;
  readonly #program: readonly Instruction[];
  readonly #stack: number[] = [];
  /** The round in which each instruction was added last: an instruction counts once at a position. */
  readonly #rounds: Float64Array;
  #round = 0;

  constructor(program: readonly Instruction[]) {
    this.#program = program;
    this.instructions = new Int32Array(program.length);
    this.starts = new Int32Array(program.length);
    this.#rounds = new Float64Array(program.length);
  }

  clear(): void {
    this.count = 0;
    this.#round++;
  }

  /** Adds the instructions that follow from one without reading a character. */
  add(first: number, start: number, found: number): void {
    for (let next: number | undefined = first; next !== undefined; next = this.#stack.pop()) {
      if (this.#rounds[next] === this.#round) continue;
      this.#rounds[next] = this.#round;
      const instruction = this.#program[next] as Instruction;
      if (instruction.kind === "split") this.#stack.push(instruction.other, instruction.next);
      else if (instruction.kind === "check")
        (instruction.conditions & ~found) === 0 && this.#stack.push(instruction.next);
      else {
        this.instructions[this.count] = next;
        this.starts[this.count++] = start;
      }
    }
  }
}

/** What is known at a position of a text that is tested: the ways that are open before their conditions are checked. */
interface State {
  readonly open: readonly number[];
  /** A character with the same conditions as the one before the position. */
  readonly before: number;
  /** The next states by the characters that are read, and by -1 at the end of the text; true if the text matches. */
  readonly next: Map<number, State | boolean>;
}

/** How many open ways the states of a pattern may keep. */
const mostKept = 50_000;

/** Tests texts with states that are kept, so that most characters cost one look-up. */
class Automaton {
  readonly #program: readonly Instruction[];
  readonly #start: number;
  readonly #isAnchored: boolean;
  readonly #hasConditions: boolean;
  readonly #ways: Ways;
  readonly #states = new Map<string, State>();
  #size = 0;

  constructor(program: readonly Instruction[], start: number, isAnchored: boolean) {
    this.#program = program;
    this.#start = start;
    this.#isAnchored = isAnchored;
    this.#hasConditions = program.some(({ kind }) => kind === "check");
    this.#ways = new Ways(program);
  }

  /** Returns undefined if the states that the pattern needs are too many. */
  test(text: string): boolean | undefined {
    let state: State | boolean = this.#getState([this.#start], -1);
    for (let position = 0; typeof state === "object"; position++) {
      if (this.#size > mostKept) {
        this.#states.clear();
        return undefined;
      }
      const code: number = position < text.length ? (text.codePointAt(position) as number) : -1;
      if (code > 0xffff) position++;
      state = state.next.get(code) ?? this.#move(state, code);
    }
    return state;
  }

  #getState(open: readonly number[], before: number): State {
    const key = `${before} ${open}`;
    const known = this.#states.get(key);
    if (known) return known;
    const state: State = { open, before, next: new Map() };
    this.#states.set(key, state);
    return state;
  }

  #move(state: State, code: number): State | boolean {
    const next = this.#read(state, code);
    state.next.set(code, next);
    this.#size += state.open.length;
    return next;
  }

  #read({ open, before }: State, code: number): State | boolean {
    const found = this.#hasConditions ? findConditions(before, code) : 0;
    const ways = this.#ways;
    ways.clear();
    for (const instruction of open) ways.add(instruction, 0, found);
    const next = new Set<number>();
    for (let index = 0; index < ways.count; index++) {
      const instruction = this.#program[ways.instructions[index] as number] as Instruction;
      if (instruction.kind === "match") return true;
      if (code >= 0 && instruction.accepts(code)) next.add(instruction.next);
    }
    if (!this.#isAnchored) next.add(this.#start);
    if (code < 0 || next.size === 0) return false;
    const similar = isWord(code) ? 97 : code === 10 ? 10 : 32;
    return this.#getState([...next].sort(), this.#hasConditions ? similar : -1);
  }
}

interface Matcher {
  /** The number of the program's instructions. */
  readonly size: number;
  test(text: string): boolean;
  /** Returns the range of the first match at or after a position. */
  search(text: string, from: number): [start: number, end: number] | undefined;
}

const createMatcher = (source: string): Matcher => {
  const compiled = compileProgram(source);
  const { instructions: program, start: first } = compiled;
  const isAnchored = startsText(compiled);
  const automaton = new Automaton(program, first, isAnchored);
  let [current, next] = [new Ways(program), new Ways(program)];

  const search: Matcher["search"] = (text, from) => {
    let matched: [number, number] | undefined;
    let [position, code, found] = [from, -1, 0];
    const moveTo = (target: number) => {
      position = target;
      code = text.codePointAt(position) ?? -1;
      found = findConditions(readBefore(text, position), code);
    };
    moveTo(from);
    current.clear();
    for (;;) {
      if (current.count === 0 && (matched || (position > 0 && isAnchored))) return matched;
      if (!matched) current.add(first, position, found);
      const [here, read] = [position, code];
      moveTo(position + (code > 0xffff ? 2 : 1));
      next.clear();
      for (let index = 0; index < current.count; index++) {
        const instruction = program[current.instructions[index] as number] as Instruction;
        const start = current.starts[index] as number;
        if (instruction.kind === "match") {
          matched = [start, here];
          break;
        }
        if (read >= 0 && instruction.accepts(read)) next.add(instruction.next, start, found);
      }
      if (read < 0) return matched;
      [current, next] = [next, current];
    }
  };

  return { size: program.length, test: (text) => automaton.test(text) ?? search(text, 0) !== undefined, search };
};

const createPattern = (source: string): Pattern => {
  const { size, test, search } = createMatcher(source);
  return {
    size,
    test,
    find: (text) => text.slice(...(search(text, 0) ?? [0, 0])),
    findAll: (text, limit = Number.POSITIVE_INFINITY) => {
      const parts: string[] = [];
      let lastEnd = -1;
      for (let position = 0; position <= text.length && parts.length < limit; ) {
        const range = search(text, position);
        if (!range) break;
        const [start, end] = range;
        // An empty match directly after another match doesn't count.
        if (end > position || start !== lastEnd) parts.push(text.slice(start, end));
        position = end > position ? end : end + ((text.codePointAt(end) ?? 0) > 0xffff ? 2 : 1);
        lastEnd = end;
      }
      return parts;
    },
  };
};

/** Returns the character before a position, or -1. */
const readBefore = (text: string, position: number): number => {
  const unit = position > 0 ? text.charCodeAt(position - 1) : -1;
  const isSecond = (unit & 0xfc00) === 0xdc00 && position > 1;
  return isSecond ? (text.codePointAt(position - 2) as number) : unit;
};

/** Reports whether a match can begin only at the start of the text. */
const startsText = ({ instructions, start }: PatternProgram): boolean => {
  let next = instructions[start];
  for (; next?.kind === "check"; next = instructions[next.next])
    if (next.conditions & conditions.textStart) return true;
  return false;
};

const patterns = new Map<string, Pattern>();
const mostPatterns = 100;
const mostKeptInstructions = 10_000;

/** Compiles a pattern; throws upstream's error if it is wrong. The patterns that were used last are kept. */
export const compilePattern = (source: string): Pattern => {
  const pattern = patterns.get(source) ?? createPattern(source);
  if (pattern.size > mostKeptInstructions) return pattern;
  patterns.delete(source);
  patterns.set(source, pattern);
  if (patterns.size > mostPatterns) patterns.delete(patterns.keys().next().value as string);
  return pattern;
};

const compileArgument = (source: string): Pattern =>
  rewordErrors(
    () => compilePattern(source),
    (message) => `Illegal regex: ${message}`,
  );

const find = (text: string, source: string): string => compileArgument(source).find(text);

const findAll = (text: string, source: string, limit: number | bigint = -1): readonly string[] =>
  compileArgument(source).findAll(text, limit < 0 ? undefined : Number(limit));

/** Returns a function as it is, once a constant pattern is found valid; it is kept for the calls. */
const usePattern = (source: string, evaluate: Evaluate): Evaluate => {
  compilePattern(source);
  return evaluate;
};

const countSearch = ([text, source]: readonly Value[]): number =>
  countTraversal(getActualSize(text as Value) + 1) * countTraversal(getActualSize(source as Value), 0.25);

/** Kubernetes' functions of regular expressions. */
export const regexFunctions: readonly FunctionDeclaration[] = [
  {
    ...declareMethod("find", "string_find_string", [string, string], string, find, countSearch),
    usePattern: (source) => usePattern(source, find),
  },
  {
    ...declareMethod("findAll", "string_find_all_string", [string, string], listOf(string), findAll, countSearch),
    usePattern: (source) => usePattern(source, findAll),
  },
  declareMethod("findAll", "string_find_all_string_int", [string, string, int], listOf(string), findAll, countSearch),
];
