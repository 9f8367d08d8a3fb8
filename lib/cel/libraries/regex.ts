import { RE2JS, RE2JSSyntaxException } from "@bufbuild/re2";
import { countTraversal } from "../cost.ts";
import { type FunctionDeclaration, member } from "../functions.ts";
import { int, listOf, string } from "../types.ts";
import { EvaluationError, findSize, type Value } from "../values.ts";

/** A regular expression in RE2's syntax. Searching takes time in proportion to the text. */
export interface Pattern {
  /** Reports whether a part of a text matches. */
  test(text: string): boolean;
  /** Returns the first part of a text that matches; an empty text if there is none. */
  find(text: string): string;
  /** Returns the parts of a text that match, without overlaps. */
  findAll(text: string, limit?: number): string[];
}

// The package compiles patterns, but says only whether a text matches, and not in linear time if a pattern is large. So
// the program that it compiles is run here: all ways to match advance together, one character at a time.

type Program = ReturnType<RE2JS["re2"]>["prog"];

/** The operations of the package's programs; all greater ones read a character. */
const operations = { alternative: 1, alternativeMatch: 2, capture: 3, condition: 4, fail: 5, match: 6, nothing: 7 };
/** The conditions of the package's programs. */
const conditions = { lineStart: 1, lineEnd: 2, textStart: 4, textEnd: 8, boundary: 16, noBoundary: 32 };

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
  readonly #program: Program;
  readonly #stack: number[] = [];
  /** The round in which each instruction was added last: an instruction counts once at a position. */
  readonly #rounds: Float64Array;
  #round = 0;

  constructor(program: Program) {
    this.#program = program;
    this.instructions = new Int32Array(program.numInst());
    this.starts = new Int32Array(program.numInst());
    this.#rounds = new Float64Array(program.numInst());
  }

  clear(): void {
    this.count = 0;
    this.#round++;
  }

  /** Adds the instructions that follow from one without reading a character. */
  add(instruction: number, start: number, found: number): void {
    const stack = this.#stack;
    stack.push(instruction);
    for (let current = stack.pop(); current !== undefined; current = stack.pop()) {
      if (this.#rounds[current] === this.#round) continue;
      this.#rounds[current] = this.#round;
      const { op, out, arg } = this.#program.getInst(current);
      if (op === operations.alternative || op === operations.alternativeMatch) stack.push(arg, out);
      else if (op === operations.capture || op === operations.nothing) stack.push(out);
      else if (op === operations.condition) (arg & ~found) === 0 && stack.push(out);
      else if (op !== operations.fail) {
        this.instructions[this.count] = current;
        this.starts[this.count++] = start;
      }
    }
  }
}

const createPattern = (source: string): Pattern => {
  const { prog, prefix, prefixComplete, cond } = compile(source);
  let [current, next] = [new Ways(prog), new Ways(prog)];

  /** Returns the range of the first match at or after a position, or for a test of any match. */
  const search = (text: string, from: number, isTest = false): [start: number, end: number] | undefined => {
    if (prefixComplete) {
      const start = text.indexOf(prefix, from);
      return start < 0 ? undefined : [start, start + prefix.length];
    }
    let matched: [number, number] | undefined;
    current.clear();
    let position = from;
    let before = position > 0 ? readBefore(text, position) : -1;
    for (;;) {
      if (current.count === 0) {
        if (matched || (position > 0 && cond & conditions.textStart)) return matched;
        if (prefix !== "") {
          position = text.indexOf(prefix, position);
          if (position < 0) return undefined;
          before = readBefore(text, position);
        }
      }
      const code = text.codePointAt(position) ?? -1;
      if (!matched) current.add(prog.start, position, findConditions(before, code));
      const end = position + (code > 0xffff ? 2 : 1);
      const found = findConditions(code, text.codePointAt(end) ?? -1);
      next.clear();
      for (let index = 0; index < current.count; index++) {
        const instruction = prog.getInst(current.instructions[index] as number);
        const start = current.starts[index] as number;
        if (instruction.op === operations.match) {
          matched = [start, position];
          if (isTest) return matched;
          break;
        }
        if (code >= 0 && instruction.matchRune(code)) next.add(instruction.out, start, found);
      }
      if (code < 0) return matched;
      [current, next] = [next, current];
      position = end;
      before = code;
    }
  };

  return {
    test: (text) => search(text, 0, true) !== undefined,
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

const compile = (source: string): ReturnType<RE2JS["re2"]> => {
  try {
    return new RE2JS(source).re2();
  } catch (error) {
    if (!(error instanceof RE2JSSyntaxException)) throw error;
    throw new EvaluationError(`error parsing regexp: ${error.error}: \`${error.input ?? ""}\``);
  }
};

const patterns = new Map<string, Pattern>();
const mostPatterns = 100;

/** Compiles a pattern; throws upstream's error if it is wrong. The patterns that were used last are kept. */
export const compilePattern = (source: string): Pattern => {
  const pattern = patterns.get(source) ?? createPattern(source);
  patterns.delete(source);
  patterns.set(source, pattern);
  if (patterns.size > mostPatterns) patterns.delete(patterns.keys().next().value as string);
  return pattern;
};

const compileArgument = (source: string): Pattern => {
  try {
    return compilePattern(source);
  } catch (error) {
    if (error instanceof EvaluationError) throw new EvaluationError(`Illegal regex: ${error.message}`);
    throw error;
  }
};

const find = (text: string, source: string): string => compileArgument(source).find(text);

const findAll = (text: string, source: string, limit: number | bigint = -1): readonly string[] =>
  compileArgument(source).findAll(text, limit < 0 ? undefined : Number(limit));

const countSearch = ([text, source]: readonly Value[]): number =>
  countTraversal((findSize(text as Value) ?? 1) + 1) * countTraversal(findSize(source as Value) ?? 1, 0.25);

/** Kubernetes' functions of regular expressions. */
export const regexFunctions: readonly FunctionDeclaration[] = [
  { name: "find", overloads: [member("string_find_string", [string, string], string, find)], cost: countSearch },
  {
    name: "findAll",
    overloads: [
      member("string_find_all_string", [string, string], listOf(string), findAll),
      member("string_find_all_string_int", [string, string, int], listOf(string), findAll),
    ],
    cost: countSearch,
  },
];
