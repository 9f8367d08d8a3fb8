import { countTraversal, getActualSize } from "../cost-formulas.ts";
import { declareMethod, type FunctionDeclaration } from "../functions.ts";
import { int, listOf, string } from "../types.ts";
import type { Value } from "../values.ts";
import { rewordErrors } from "./errors.ts";
import { compileProgram, conditionBits, type Instruction } from "./regex-syntax.ts";

// A regular expression can match in several ways. All ways are followed at the same time, character by character, so a
// search takes linear time.

/** Returns the conditions that are met between two characters; -1 stands for the start or the end of the text. */
const findConditions = (before: number, after: number): number => {
  let metConditions = isWord(before) === isWord(after) ? conditionBits.noBoundary : conditionBits.boundary;
  if (before === -1) metConditions |= conditionBits.textStart | conditionBits.lineStart;
  if (before === 10) metConditions |= conditionBits.lineStart;
  if (after === -1) metConditions |= conditionBits.textEnd | conditionBits.lineEnd;
  if (after === 10) metConditions |= conditionBits.lineEnd;
  return metConditions;
};

const isWord = (code: number): boolean =>
  (code >= 97 && code <= 122) || (code >= 65 && code <= 90) || (code >= 48 && code <= 57) || code === 95;

/** The possible ways to match at a position of the text. The preferred way comes first. */
class Ways {
  /** For each way, the instruction that reads the next character. */
  readonly instructions: Int32Array;
  /** For each way, the position at which its match began. */
  readonly starts: Int32Array;
  count = 0;
  readonly #program: readonly Instruction[];
  readonly #stack: number[] = [];
  /** For each instruction, the round in which it was added last. At one position, an instruction is added only once. */
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

  /** Adds the instructions reached from `first` without reading a character. `metConditions`: bits, such as of `^`. */
  add(first: number, start: number, metConditions: number): void {
    for (let next: number | undefined = first; next !== undefined; next = this.#stack.pop()) {
      if (this.#rounds[next] === this.#round) continue;
      this.#rounds[next] = this.#round;
      const instruction = this.#program[next] as Instruction;
      if (instruction.kind === "split") this.#stack.push(instruction.other, instruction.next);
      else if (instruction.kind === "check")
        (instruction.conditions & ~metConditions) === 0 && this.#stack.push(instruction.next);
      else {
        this.instructions[this.count] = next;
        this.starts[this.count++] = start;
      }
    }
  }
}

/**
 * A state of `test` between two characters: the instructions at which the match may continue, and the kind of the
 * character before. It is cached, and used again at each position where these are the same, as in a DFA.
 */
interface State {
  /**
   * For each way, the index of its next instruction. Conditions such as `$` and `\b` were not checked yet, because they
   * depend on the next character, too.
   */
  readonly ways: readonly number[];
  /** A character that has the same effect on conditions as the character before the position. */
  readonly before: number;
  /** The next state by the next character, or by -1 for the end of the text. True or false if the test ends. */
  readonly next: Map<number, State | boolean>;
}

/** The most ways that the states of one pattern keep. With more, `test` deletes the states, and searches instead. */
const maxKeptWays = 50_000;

/** A regular expression in RE2's syntax. A search takes linear time. */
class Pattern {
  /** The text that the pattern matches, if it has no special characters. */
  readonly #literal: string | undefined;
  readonly #program: readonly Instruction[];
  readonly #start: number;
  /** Whether a match can begin only at the start of the text. */
  readonly #isAnchored: boolean;
  readonly #hasConditions: boolean;
  readonly #ways: readonly [Ways, Ways];
  /** The states of `test` by their ways. With them, most characters need only one look-up. */
  readonly #states = new Map<string, State>();
  #keptWays = 0;

  constructor(source: string) {
    const { instructions, start } = compileProgram(source);
    this.#literal = /[$()*+.?[\\\]^{|}]/.test(source) ? undefined : source;
    this.#program = instructions;
    this.#start = start;
    this.#isAnchored = ((instructions[start]?.conditions ?? 0) & conditionBits.textStart) !== 0;
    this.#hasConditions = instructions.some(({ kind }) => kind === "check");
    this.#ways = [new Ways(instructions), new Ways(instructions)];
  }

  /** The number of instructions. */
  get size(): number {
    return this.#program.length;
  }

  /** Reports whether a part of a text matches. */
  test(text: string): boolean {
    if (this.#literal !== undefined) return text.includes(this.#literal);
    let state: State | boolean = this.#getState([this.#start], -1);
    for (let position = 0; typeof state === "object"; position++) {
      if (this.#keptWays > maxKeptWays) {
        this.#states.clear();
        return this.#search(text, 0) !== undefined;
      }
      const code: number = text.codePointAt(position) ?? -1;
      if (code > 0xffff) position++;
      state = state.next.get(code) ?? this.#move(state, code);
    }
    return state;
  }

  /** Returns the first part of a text that matches; an empty text if there is none. */
  find(text: string): string {
    return text.slice(...(this.#search(text, 0) ?? [0, 0]));
  }

  /** Returns the parts of a text that match, without overlaps. */
  findAll(text: string, limit = Number.POSITIVE_INFINITY): string[] {
    const parts: string[] = [];
    let lastEnd = -1;
    for (let position = 0; position <= text.length && parts.length < limit; ) {
      const range = this.#search(text, position);
      if (!range) break;
      const [start, end] = range;
      // An empty match directly after another match doesn't count.
      if (end > position || start !== lastEnd) parts.push(text.slice(start, end));
      position = end > position ? end : end + ((text.codePointAt(end) ?? 0) > 0xffff ? 2 : 1);
      lastEnd = end;
    }
    return parts;
  }

  /** Returns the range of the first match at or after a position. */
  #search(text: string, from: number): [start: number, end: number] | undefined {
    let [current, next] = this.#ways;
    let matched: [number, number] | undefined;
    let position = from;
    let code = text.codePointAt(position) ?? -1;
    let metConditions = findConditions(position > 0 ? text.charCodeAt(position - 1) : -1, code);
    current.clear();
    while (current.count > 0 || !(matched || (position > 0 && this.#isAnchored))) {
      if (!matched) current.add(this.#start, position, metConditions);
      const after = position + (code > 0xffff ? 2 : 1);
      const codeAfter = text.codePointAt(after) ?? -1;
      metConditions = findConditions(code, codeAfter);
      next.clear();
      for (let index = 0; index < current.count; index++) {
        const instruction = this.#program[current.instructions[index] as number] as Instruction;
        const start = current.starts[index] as number;
        if (instruction.kind === "match") {
          matched = [start, position];
          break;
        }
        if (code >= 0 && instruction.accepts(code)) next.add(instruction.next, start, metConditions);
      }
      if (code < 0) break;
      [current, next] = [next, current];
      [position, code] = [after, codeAfter];
    }
    return matched;
  }

  #getState(ways: readonly number[], before: number): State {
    const key = `${before} ${ways}`;
    const cached = this.#states.get(key);
    if (cached) return cached;
    const state: State = { ways, before, next: new Map() };
    this.#states.set(key, state);
    return state;
  }

  #move(state: State, code: number): State | boolean {
    const next = this.#read(state, code);
    state.next.set(code, next);
    this.#keptWays += state.ways.length;
    return next;
  }

  #read({ ways, before }: State, code: number): State | boolean {
    const metConditions = this.#hasConditions ? findConditions(before, code) : 0;
    const [checked] = this.#ways;
    checked.clear();
    for (const instruction of ways) checked.add(instruction, 0, metConditions);
    const next = new Set<number>();
    for (let index = 0; index < checked.count; index++) {
      const instruction = this.#program[checked.instructions[index] as number] as Instruction;
      if (instruction.kind === "match") return true;
      if (code >= 0 && instruction.accepts(code)) next.add(instruction.next);
    }
    if (!this.#isAnchored) next.add(this.#start);
    if (code < 0 || next.size === 0) return false;
    // For conditions, only three kinds of characters differ: word characters ("a"), line feeds and others (" ").
    const similar = isWord(code) ? 97 : code === 10 ? 10 : 32;
    return this.#getState([...next].sort(), this.#hasConditions ? similar : -1);
  }
}

const patterns = new Map<string, Pattern>();
const maxCachedPatterns = 100;
const maxCachedInstructions = 10_000;

/** Compiles a pattern. Throws upstream's error if it is invalid. The patterns that were used last are cached. */
export const compilePattern = (source: string): Pattern => {
  const pattern = patterns.get(source) ?? new Pattern(source);
  if (pattern.size > maxCachedInstructions) return pattern;
  patterns.delete(source);
  patterns.set(source, pattern);
  if (patterns.size > maxCachedPatterns) patterns.delete(patterns.keys().next().value as string);
  return pattern;
};

const compileArgument = (source: string): Pattern =>
  rewordErrors(
    () => compilePattern(source),
    (message) => `Illegal regex: ${message}`,
  );

const find = (text: string, source: string): string => compileArgument(source).find(text);

const findAll = (text: string, source: string, limit: number | bigint = -1): readonly string[] =>
  compileArgument(source).findAll(text, toLimit(limit));

const toLimit = (limit: number | bigint): number | undefined => (limit < 0 ? undefined : Number(limit));

const countSearch = ([text, source]: readonly Value[]): number =>
  countTraversal(getActualSize(text as Value) + 1) * countTraversal(getActualSize(source as Value), 0.25);

/** Kubernetes' functions of regular expressions. `precompile` compiles a constant pattern once for all calls. */
export const regexFunctions: readonly FunctionDeclaration[] = [
  {
    ...declareMethod("find", "string_find_string", [string, string], string, find, countSearch),
    precompile: (source) => {
      const pattern = compilePattern(source);
      return (text: string) => pattern.find(text);
    },
  },
  {
    ...declareMethod("findAll", "string_find_all_string", [string, string], listOf(string), findAll, countSearch),
    precompile: (source) => {
      const pattern = compilePattern(source);
      // This also serves the overload with a limit: an environment combines the declarations of a name.
      return (text: string, _: string, limit: number | bigint = -1) => pattern.findAll(text, toLimit(limit));
    },
  },
  declareMethod("findAll", "string_find_all_string_int", [string, string, int], listOf(string), findAll, countSearch),
];
