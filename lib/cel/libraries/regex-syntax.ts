import { EvaluationError } from "../values.ts";

// Go's syntax of regular expressions. A pattern becomes a program, whose instructions are all ways to match.

/** A step of a program. All have the same members, which makes them fast. */
export interface Instruction {
  readonly kind: "match" | "split" | "check" | "read";
  readonly next: number;
  /** Where a split also goes on; `next` is preferred. */
  readonly other: number;
  /** What a check requires at the position. */
  readonly conditions: number;
  /** Reports whether a character can be read. */
  readonly accepts: Accepts;
  /** The only character that can be read. */
  readonly literal: string;
}

type Accepts = (code: number) => boolean;

export interface PatternProgram {
  readonly instructions: readonly Instruction[];
  readonly start: number;
}

/** What a pattern can require at a position. */
export const conditions = { lineStart: 1, lineEnd: 2, textStart: 4, textEnd: 8, boundary: 16, noBoundary: 32 };

/** A part of a pattern. What is limited is its instructions, its levels, and its copies by nested repetitions. */
type Part = {
  readonly size: number;
  readonly height: number;
  readonly copies: number;
  /** Whether it matches the empty text. */
  readonly isNullable: boolean;
} & (
  | { readonly kind: "read"; readonly accepts: Accepts; readonly literal: string }
  | { readonly kind: "check"; readonly conditions: number }
  | { readonly kind: "sequence" | "choice"; readonly parts: readonly Part[] }
  | Repetition
);

interface Repetition {
  readonly kind: "repetition";
  readonly part: Part;
  readonly min: number;
  readonly max: number;
  readonly isGreedy: boolean;
}

/** The limits of upstream, but that of instructions, which is 3 million: they would need too much memory. */
const [mostInstructions, mostLevels, mostCopies] = [250_000, 1000, 1000];

const single = { size: 1, height: 1, copies: 1, isNullable: false };

/** A group that is open: the choices before the last `|`, and the parts after it. */
interface Group {
  readonly flagsOutside: ReadonlySet<string>;
  readonly isCapture: boolean;
  readonly choices: Part[];
  parts: Part[];
}

const createError = (fault: string, text: string): EvaluationError =>
  new EvaluationError(`error parsing regexp: ${fault}: \`${text}\``);

/** The sets that have a name, as parts of JavaScript's classes; an upper case letter is the opposite. */
const letterSets: Readonly<Record<string, string>> = { d: "0-9", s: "\\t\\n\\f\\r ", w: "\\w" };
const namedSets: Readonly<Record<string, string>> = {
  alnum: "0-9A-Za-z",
  alpha: "A-Za-z",
  ascii: "\\0-\\x7f",
  blank: "\\t ",
  cntrl: "\\0-\\x1f\\x7f",
  digit: "0-9",
  graph: "!-~",
  lower: "a-z",
  print: " -~",
  punct: "!-\\/:-@\\[-`\\{-~",
  space: "\\t-\\r ",
  upper: "A-Z",
  word: "0-9A-Za-z_",
  xdigit: "0-9A-Fa-f",
};
const escapes: Readonly<Record<string, number>> = { a: 7, f: 12, n: 10, r: 13, t: 9, v: 11 };

const categoryNames =
  "C Cc Cf Cn Co Cs L LC Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs Any ASCII Assigned " +
  "Cased_Letter Close_Punctuation Combining_Mark Connector_Punctuation Control Currency_Symbol Dash_Punctuation Decimal_Number " +
  "Enclosing_Mark Final_Punctuation Format Initial_Punctuation Letter Letter_Number Line_Separator Lowercase_Letter Mark " +
  "Math_Symbol Modifier_Letter Modifier_Symbol Nonspacing_Mark Number Open_Punctuation Other Other_Letter Other_Number " +
  "Other_Punctuation Other_Symbol Paragraph_Separator Private_Use Punctuation Separator Space_Separator Spacing_Mark Surrogate " +
  "Symbol Titlecase_Letter Unassigned Uppercase_Letter cntrl digit punct";

/** Go ignores the case and spaces in names of properties. */
const toKey = (name: string): string => name.replace(/[-_ ]/g, "").toLowerCase();

let categories: ReadonlyMap<string, string> | undefined;

/** Returns JavaScript's name of a property of Unicode. */
const findProperty = (name: string): string | undefined => {
  const key = toKey(name);
  categories ??= new Map(categoryNames.split(" ").map((category) => [toKey(category), category]));
  const category = categories.get(key);
  if (category) return category;
  // Go doesn't find scripts with names of several words, and knows neither short names nor scripts since Unicode 15.
  const isShort = key.length === 4 && !/^(?:ahom|cham|kawi|lisu|modi|thai|toto)$/.test(key);
  if (isShort || !/^[a-z]+$/.test(key) || /^(?:unknown|garay|sunuwar|todhri|sidetic)$/.test(key)) return undefined;
  const script = `Script=${key.charAt(0).toUpperCase()}${key.slice(1)}`;
  try {
    return new RegExp(`\\p{${script}}`, "u") && script;
  } catch {
    return undefined;
  }
};

/** Returns a function that tests characters with a class of JavaScript, which folds cases as Go does. */
const createTest = (source: string, isFolded: boolean): Accepts => {
  const pattern = new RegExp(`^(?:${source})$`, isFolded ? "iu" : "u");
  // 1 for an ASCII character that is accepted, 2 for one that isn't.
  const known = new Uint8Array(128);
  return (code) => {
    if (code >= 128) return pattern.test(String.fromCodePoint(code));
    known[code] ||= pattern.test(String.fromCodePoint(code)) ? 1 : 2;
    return known[code] === 1;
  };
};

const toEscape = (code: number): string => `\\u{${code.toString(16)}}`;

const isEmpty = ({ isNullable }: Part): boolean => isNullable;

const join = (kind: "sequence" | "choice", parts: readonly Part[]): Part => {
  if (parts[0] && parts.length === 1) return parts[0];
  const isNullable = kind === "choice" ? parts.some(isEmpty) : parts.every(isEmpty);
  const result = { kind, parts, size: kind === "choice" ? parts.length - 1 : 0, height: 0, copies: 1, isNullable };
  for (const { size, height, copies } of parts) {
    result.size += size;
    result.height = Math.max(result.height, height);
    result.copies = Math.max(result.copies, copies);
  }
  return { ...result, size: Math.max(result.size, 1), height: result.height + 1 };
};

class Parser {
  readonly #text: string;
  /** Where the last name of a set can end: without it, a search at each `[:` would read the whole text. */
  readonly #lastNameEnd: number;
  #position = 0;
  #flags: ReadonlySet<string> = new Set();
  readonly #groups: Group[] = [];
  #group: Group = { flagsOutside: this.#flags, isCapture: false, choices: [], parts: [] };

  constructor(text: string) {
    this.#text = text;
    this.#lastNameEnd = text.lastIndexOf(":]");
  }

  parse(): Part {
    // Where the repetition before the position begins; another one must not follow.
    let repetition = -1;
    while (this.#position < this.#text.length) {
      const start = this.#position;
      repetition = this.#parseNext(repetition) ? start : -1;
    }
    if (this.#groups.length > 0) throw createError("missing closing )", this.#text);
    const part = this.#closeChoices();
    this.#checkLimits(part);
    return part;
  }

  /** Parses the next part, and reports whether it is a repetition. */
  #parseNext(lastRepetition: number): boolean {
    const start = this.#position;
    const counts = this.#read(/\{(0|[1-9]\d*)(?:(,)(0|[1-9]\d*)?)?\}/y);
    if (counts) {
      const min = Number(counts[1]);
      const max = counts[2] === undefined ? min : counts[3] === undefined ? -1 : Number(counts[3]);
      if (min > 1000 || max > 1000 || (max >= 0 && min > max)) throw this.#createError("invalid repeat count", start);
      this.#repeat(start, min, max, lastRepetition);
      return true;
    }
    const character = this.#readCharacter();
    switch (character) {
      case "(":
        this.#openGroup(start);
        return false;
      case ")":
        this.#closeGroup();
        return false;
      case "|":
        this.#group.choices.push(join("sequence", this.#group.parts));
        this.#group.parts = [];
        return false;
      case "*":
      case "+":
      case "?":
        this.#repeat(start, character === "+" ? 1 : 0, character === "?" ? 1 : -1, lastRepetition);
        return true;
      case "^":
        this.#addCheck(this.#flags.has("m") ? conditions.lineStart : conditions.textStart);
        return false;
      case "$":
        this.#addCheck(this.#flags.has("m") ? conditions.lineEnd : conditions.textEnd);
        return false;
      case ".":
        this.#addClass(this.#flags.has("s") ? "[^]" : "[^\\n]");
        return false;
      case "[":
        this.#addClass(this.#parseClass(start));
        return false;
      case "\\":
        this.#parseBackslash(start);
        return false;
      default:
        this.#addLiteral(character.codePointAt(0) as number);
        return false;
    }
  }

  #createError(fault: string, start: number): EvaluationError {
    return createError(fault, this.#text.slice(start, this.#position));
  }

  /** Reads what matches a sticky pattern at the position. */
  #read(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.#position;
    const found = pattern.exec(this.#text);
    if (found) this.#position = pattern.lastIndex;
    return found;
  }

  /** Returns the next character; an empty text at the end. */
  #readCharacter(): string {
    const code = this.#text.codePointAt(this.#position);
    if (code === undefined) return "";
    const character = String.fromCodePoint(code);
    this.#position += character.length;
    return character;
  }

  #checkLimits({ size, height }: Part): void {
    if (size > mostInstructions) throw createError("expression too large", this.#text);
    if (height > mostLevels) throw createError("expression nests too deeply", this.#text);
  }

  #add(part: Part): void {
    this.#checkLimits(part);
    this.#group.parts.push(part);
  }

  #addCheck(required: number): void {
    this.#add({ ...single, kind: "check", conditions: required, isNullable: true });
  }

  #addClass(source: string): void {
    this.#add({ ...single, kind: "read", accepts: createTest(source, this.#flags.has("i")), literal: "" });
  }

  #addLiteral(code: number): void {
    if (this.#flags.has("i")) this.#addClass(toEscape(code));
    else
      this.#add({ ...single, kind: "read", accepts: (other) => other === code, literal: String.fromCodePoint(code) });
  }

  #repeat(start: number, min: number, max: number, lastRepetition: number): void {
    const isGreedy = (this.#read(/\?/y) !== null) === this.#flags.has("U");
    if (lastRepetition >= 0) throw this.#createError("invalid nested repetition operator", lastRepetition);
    const part = this.#group.parts.pop();
    if (!part) throw this.#createError("missing argument to repetition operator", start);
    const times = max < 0 ? min : max;
    const copies = max === 0 ? 1 : part.copies * Math.max(times, 1);
    if (Math.max(min, max) >= 2 && copies > mostCopies) throw this.#createError("invalid repeat count", start);
    const size = Math.max(1, times * part.size + (max < 0 ? (min === 0 ? 2 + part.size : 1) : max - min));
    const isNullable = min === 0 || part.isNullable;
    this.#add({ kind: "repetition", part, min, max, isGreedy, size, height: part.height + 1, copies, isNullable });
  }

  #openGroup(start: number): void {
    const flagsOutside = this.#flags;
    if (this.#read(/\?/y)) {
      if (this.#read(/P?<(?=.)/sy)) {
        if (this.#read(/[^>]*>/y) === null) throw createError("invalid named capture", this.#text.slice(start));
        const capture = this.#text.slice(start, this.#position);
        if (!/^\(\?P?<\w+>$/.test(capture)) throw createError("invalid named capture", capture);
      } else if (this.#parseFlags(start)) return;
      else {
        this.#push({ flagsOutside, isCapture: false, choices: [], parts: [] });
        return;
      }
    }
    this.#push({ flagsOutside, isCapture: true, choices: [], parts: [] });
  }

  #push(group: Group): void {
    this.#groups.push(this.#group);
    this.#group = group;
  }

  /** Parses the flags of a group that captures nothing, and reports whether they are all it has. */
  #parseFlags(start: number): boolean {
    const flags = new Set(this.#flags);
    let isNegative = false;
    let hasFlag = false;
    for (;;) {
      const character = this.#readCharacter();
      if (/^[imsU]$/.test(character)) {
        hasFlag = true;
        if (isNegative) flags.delete(character);
        else flags.add(character);
      } else if (character === "-" && !isNegative) {
        isNegative = true;
        hasFlag = false;
      } else if (/^[:)]$/.test(character) && (!isNegative || hasFlag)) {
        this.#flags = flags;
        return character === ")";
      } else throw this.#createError("invalid or unsupported Perl syntax", start);
    }
  }

  #closeChoices(): Part {
    const { choices, parts } = this.#group;
    return join("choice", [...choices, join("sequence", parts)]);
  }

  #closeGroup(): void {
    const outer = this.#groups.pop();
    if (!outer) throw createError("unexpected )", this.#text);
    const { flagsOutside, isCapture } = this.#group;
    const part = this.#closeChoices();
    this.#group = outer;
    this.#flags = flagsOutside;
    const { size, height, copies, isNullable } = part;
    const capture = { kind: "repetition", part, min: 1, max: 1, isGreedy: true, copies, isNullable } as const;
    this.#add(isCapture ? { ...capture, size: size + 2, height: height + 1 } : part);
  }

  #parseBackslash(start: number): void {
    const set = this.#readSet(start);
    if (set !== undefined) {
      this.#addClass(set);
      return;
    }
    const quoted = this.#read(/Q(.*?)(?:\\E|$)/sy);
    if (quoted) {
      for (const character of quoted[1] ?? "") this.#addLiteral(character.codePointAt(0) as number);
      return;
    }
    const [position = ""] = this.#read(/[AbBz]/y) ?? [];
    if (position === "A") this.#addCheck(conditions.textStart);
    else if (position === "z") this.#addCheck(conditions.textEnd);
    else if (position === "b") this.#addCheck(conditions.boundary);
    else if (position === "B") this.#addCheck(conditions.noBoundary);
    else this.#addLiteral(this.#parseEscape(start));
  }

  /** Reads what follows a backslash, if it is a set such as `\d` or `\pL`, and returns it as a class of JavaScript. */
  #readSet(start: number): string | undefined {
    const [letter] = this.#read(/[dswDSW]/y) ?? [];
    if (letter) return `[${letter < "a" ? "^" : ""}${letterSets[letter.toLowerCase()]}]`;
    const property = this.#read(/([pP])(?:\{([^}]*)\}|[^{]|$|(\{))/suy);
    if (!property) return undefined;
    const [whole, sign, braced, open] = property;
    if (open) throw createError("invalid character class range", this.#text.slice(start));
    const name = braced ?? whole.slice(1);
    const found = findProperty(name.replace(/^\^/, ""));
    if (!found) throw this.#createError("invalid character class range", start);
    return `[${(sign === "P") === name.startsWith("^") ? "" : "^"}\\p{${found}}]`;
  }

  /** Returns the character that an escape means, after its backslash. */
  #parseEscape(start: number): number {
    const octal = this.#read(/0[0-7]{0,2}|[1-7][0-7]{1,2}/y);
    if (octal) return Number.parseInt(octal[0], 8);
    if (this.#position === this.#text.length) throw createError("trailing backslash at end of expression", "");
    const character = this.#readCharacter();
    if (character === "x") return this.#parseHexadecimal(start);
    if (Object.hasOwn(escapes, character)) return escapes[character] as number;
    if (!/^[\0-\x7f]$/.test(character) || /^[\dA-Za-z]$/.test(character))
      throw this.#createError("invalid escape sequence", start);
    return character.charCodeAt(0);
  }

  #parseHexadecimal(start: number): number {
    const isBraced = this.#read(/\{/y) !== null;
    let digits = "";
    while (isBraced || digits.length < 2) {
      const digit = this.#readCharacter();
      if (isBraced && digit === "}" && digits !== "") break;
      digits += digit;
      const isValid = /^[\da-f]$/i.test(digit) && Number.parseInt(digits, 16) <= 0x10ffff;
      // Go reads both digits before it looks at them.
      if (!isValid && (isBraced || digits.length === 2 || digit === "")) {
        throw this.#createError("invalid escape sequence", start);
      }
    }
    if (!/^[\da-f]+$/i.test(digits)) throw this.#createError("invalid escape sequence", start);
    return Number.parseInt(digits, 16);
  }

  /** Parses a class such as `[^a-z\d]`, and returns it as one of JavaScript. */
  #parseClass(start: number): string {
    const isNegated = this.#read(/\^/y) !== null;
    const sets: string[] = [];
    let ranges = "";
    for (let isFirst = true; isFirst || !this.#read(/\]/y); isFirst = false) {
      const begin = this.#position;
      const named = begin < this.#lastNameEnd ? this.#read(/\[:(\^?)(.*?):\]/sy) : null;
      if (named) {
        const [whole, sign, name = ""] = named;
        if (!Object.hasOwn(namedSets, name)) throw createError("invalid character class range", whole);
        sets.push(`[${sign}${namedSets[name]}]`);
        continue;
      }
      if (this.#read(/\\/y)) {
        const set = this.#readSet(begin);
        if (set !== undefined) {
          sets.push(set);
          continue;
        }
        this.#position = begin;
      }
      const low = this.#parseClassCharacter(start);
      const high = this.#read(/-(?=[^\]])/sy) ? this.#parseClassCharacter(start) : low;
      if (high < low) throw this.#createError("invalid character class range", begin);
      ranges += `${toEscape(low)}-${toEscape(high)}`;
    }
    if (ranges !== "") sets.push(`[${ranges}]`);
    const all = sets.join("|");
    return isNegated ? `(?!${all})[^]` : all;
  }

  #parseClassCharacter(start: number): number {
    const begin = this.#position;
    const character = this.#readCharacter();
    if (character === "") throw createError("missing closing ]", this.#text.slice(start));
    return character === "\\" ? this.#parseEscape(begin) : (character.codePointAt(0) as number);
  }
}

const createInstruction = ({
  kind = "match",
  next = 0,
  other = 0,
  conditions = 0,
  accepts = () => false,
  literal = "",
}: Partial<Instruction>): Instruction => ({ kind, next, other, conditions, accepts, literal });

/** Writes a program from its end to its start, so that what follows a part is known. */
class Writer {
  readonly instructions: Instruction[] = [createInstruction({ kind: "match" })];

  #add(parts: Partial<Instruction>): number {
    return this.instructions.push(createInstruction(parts)) - 1;
  }

  /** Writes a part, and returns where it starts. */
  write(part: Part, next: number): number {
    switch (part.kind) {
      case "read":
      case "check":
        return this.#add({ ...part, next });
      case "sequence":
        return part.parts.reduceRight((following, one) => this.write(one, following), next);
      case "choice": {
        const starts = part.parts.map((one) => this.write(one, next));
        return starts.reduceRight((other, start) => this.#split(start, other, true));
      }
      case "repetition":
        return this.#writeRepetition(part, next);
    }
  }

  #split(start: number, other: number, isGreedy: boolean): number {
    return this.#add(createSplit(start, other, isGreedy));
  }

  #writeRepetition({ part, min, max, isGreedy }: Repetition, next: number): number {
    let start = next;
    if (max < 0) {
      const split = this.#split(next, next, isGreedy);
      const again = this.write(part, split);
      this.instructions[split] = createSplit(again, next, isGreedy);
      // If the part can be empty, `x*` is `(x+)?`.
      start = min > 0 ? again : part.isNullable ? this.#split(again, next, isGreedy) : split;
    }
    for (let count = min; count < max; count++) start = this.#split(this.write(part, start), next, isGreedy);
    for (let count = max < 0 ? 1 : 0; count < min; count++) start = this.write(part, start);
    return start;
  }
}

const createSplit = (start: number, other: number, isGreedy: boolean): Instruction =>
  createInstruction({ kind: "split", ...(isGreedy ? { next: start, other } : { next: other, other: start }) });

/** Compiles a pattern; throws upstream's error if it is wrong. */
export const compileProgram = (source: string): PatternProgram => {
  const writer = new Writer();
  const start = writer.write(new Parser(source).parse(), 0);
  return { instructions: writer.instructions, start };
};
