import { EvaluationError } from "../values.ts";

// Go's syntax of regular expressions. A pattern is compiled to a program: instructions that describe all ways to match.

/** An instruction of a program. All instructions have the same members, which makes programs fast. */
export interface Instruction {
  readonly kind: "match" | "split" | "check" | "read";
  readonly next: number;
  /** The second continuation of a split. The first one, `next`, is preferred. */
  readonly other: number;
  /** The conditions that a check requires at the position, such as the start of a line: a sum of `conditionBits`. */
  readonly conditions: number;
  /** Reports whether a character can be read. */
  readonly accepts: Accepts;
}

type Accepts = (code: number) => boolean;

export interface PatternProgram {
  readonly instructions: readonly Instruction[];
  readonly start: number;
}

/** The conditions that a pattern can require at a position, as bits. */
export const conditionBits = { lineStart: 1, lineEnd: 2, textStart: 4, textEnd: 8, boundary: 16, noBoundary: 32 };

/** The texts in a pattern that require a condition: the condition without the flag `m`, and the one with it. */
const positions: Readonly<Record<string, readonly [number, number]>> = {
  "^": [conditionBits.textStart, conditionBits.lineStart],
  $: [conditionBits.textEnd, conditionBits.lineEnd],
  "\\A": [conditionBits.textStart, conditionBits.textStart],
  "\\z": [conditionBits.textEnd, conditionBits.textEnd],
  "\\b": [conditionBits.boundary, conditionBits.boundary],
  "\\B": [conditionBits.noBoundary, conditionBits.noBoundary],
};

/** Upstream's limits. But upstream allows 3 million instructions, which would need too much memory here. */
const [maxInstructions, maxLevels, maxCopies] = [250_000, 1000, 1000];

const createError = (fault: string, text: string): EvaluationError =>
  new EvaluationError(`error parsing regexp: ${fault}: \`${text}\``);

/** The named sets of characters, as parts of JavaScript's classes. `\D` is the opposite of `\d`. */
const letterSets: Readonly<Record<string, string>> = { d: "0-9", s: "\\t\\n\\f\\r ", w: "\\w" };
/** The characters of classes such as [[:alpha:]] in Go, as parts of JavaScript's sets. */
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

/** All names that Go's `\p{…}` accepts for general categories of Unicode, with Unicode's aliases, such as `punct`. */
const categoryNames =
  "C Cc Cf Cn Co Cs L LC Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs Any ASCII Assigned " +
  "Cased_Letter Close_Punctuation Combining_Mark Connector_Punctuation Control Currency_Symbol Dash_Punctuation Decimal_Number " +
  "Enclosing_Mark Final_Punctuation Format Initial_Punctuation Letter Letter_Number Line_Separator Lowercase_Letter Mark " +
  "Math_Symbol Modifier_Letter Modifier_Symbol Nonspacing_Mark Number Open_Punctuation Other Other_Letter Other_Number " +
  "Other_Punctuation Other_Symbol Paragraph_Separator Private_Use Punctuation Separator Space_Separator Spacing_Mark Surrogate " +
  "Symbol Titlecase_Letter Unassigned Uppercase_Letter cntrl digit punct";

/** Returns a property's name without characters that Go ignores in such names: `-`, `_`, spaces and the case. */
const toKey = (name: string): string => name.replace(/[-_ ]/g, "").toLowerCase();

let categories: ReadonlyMap<string, string> | undefined;

/** Returns JavaScript's name for a Unicode property; undefined if Go doesn't know the property. */
const findProperty = (name: string): string | undefined => {
  const key = toKey(name);
  categories ??= new Map(categoryNames.split(" ").map((category) => [toKey(category), category]));
  const category = categories.get(key);
  if (category) return category;
  // Go finds no scripts whose names have several words. It knows no short names, and no scripts that are newer than
  // Unicode 15. The listed names of four letters are full names.
  const isShort = key.length === 4 && !/^(?:ahom|cham|kawi|lisu|modi|thai|toto)$/.test(key);
  if (isShort || !/^[a-z]+$/.test(key) || /^(?:unknown|garay|sunuwar|todhri|sidetic)$/.test(key)) return undefined;
  const script = `Script=${key.charAt(0).toUpperCase()}${key.slice(1)}`;
  try {
    return new RegExp(`\\p{${script}}`, "u") && script;
  } catch {
    return undefined;
  }
};

/** Returns a function that tests a character with JavaScript's class. JavaScript ignores case in the same way as Go. */
const createTest = (source: string, isFolded: boolean): Accepts => {
  const pattern = new RegExp(`^(?:${source})$`, isFolded ? "iu" : "u");
  // A cache for ASCII characters: 1 for an accepted character, 2 for any other.
  const cached = new Uint8Array(128);
  return (code) => {
    if (code >= 128) return pattern.test(String.fromCodePoint(code));
    cached[code] ||= pattern.test(String.fromCodePoint(code)) ? 1 : 2;
    return cached[code] === 1;
  };
};

const toEscape = (code: number): string => `\\u{${code.toString(16)}}`;

/** Creates an instruction, with values for the members that instructions of its kind don't use (see Instruction). */
const createInstruction = ({
  kind = "match",
  next = 0,
  other = 0,
  conditions = 0,
  accepts = () => false,
}: Partial<Instruction>): Instruction => ({ kind, next, other, conditions, accepts });

/**
 * Creates an instruction after which a match continues in one of two ways: with the part that begins at `part`, or with
 * `other`. A greedy repetition, as in `x*`, prefers the part; another one, as in `x*?`, prefers `other`.
 */
const createSplit = (part: number, other: number, isGreedy: boolean): Instruction =>
  isGreedy
    ? createInstruction({ kind: "split", next: part, other })
    : createInstruction({ kind: "split", next: other, other: part });

/** Writes a program from its end to its start, so that the instruction after a part is known. */
class Writer {
  readonly instructions: Instruction[] = [];
  readonly #source: string;
  #parts = 0;

  constructor(source: string) {
    this.#source = source;
  }

  add(instruction: Partial<Instruction>): number {
    return this.instructions.push(createInstruction(instruction)) - 1;
  }

  /** Writes a part that continues with the instruction `next`. Returns the index of the part's first instruction. */
  write(part: Part, next: number): number {
    // Empty parts have no instructions, but a repetition can consist of many empty parts.
    if (++this.#parts > maxInstructions || this.instructions.length > maxInstructions)
      throw createError("expression too large", this.#source);
    return part.write(this, next);
  }
}

/** A part of a pattern. */
interface Part {
  /** The number of levels of nested parts. */
  readonly height: number;
  /** The most copies that nested repetitions make of the same inner part: `(a{3}){4}b{9}` makes 12 copies of `a`. */
  readonly copies: number;
  /** Whether it can match the empty text. */
  readonly isNullable: boolean;
  /** Writes the part's instructions, which go on to the one with index `next`. Returns the index of the first one. */
  readonly write: (writer: Writer, next: number) => number;
}

/** Creates a part from inner parts. Go limits its levels (`height`), and the `copies` that repetitions make. */
const createPart = (parts: readonly Part[], isNullable: boolean, write: Part["write"]): Part => ({
  height: parts.reduce((most, { height }) => Math.max(most, height), 0) + 1,
  copies: parts.reduce((most, { copies }) => Math.max(most, copies), 1),
  isNullable,
  write,
});

const isEmpty = ({ isNullable }: Part): boolean => isNullable;

const join = (parts: readonly Part[]): Part =>
  parts[0] && parts.length === 1
    ? parts[0]
    : createPart(parts, parts.every(isEmpty), (writer, next) =>
        // From the last part to the first: to write a part, the first instruction of the following part must be known.
        parts.reduceRight((following, part) => writer.write(part, following), next),
      );

const createAlternation = (choices: readonly Part[]): Part =>
  createPart(choices, choices.some(isEmpty), (writer, next) =>
    choices
      .map((choice) => writer.write(choice, next))
      // In `a|b`, the left choice is preferred, as a greedy repetition prefers its part.
      .reduceRight((other, start) => writer.add(createSplit(start, other, /* isGreedy */ true))),
  );

/**
 * Repeats a part `min` to `max` times; a negative `max` means no limit. The copies after the first `min` are optional:
 * a split before such a copy can skip to `next`, the instruction after all copies. The last copy is written first. When
 * a copy is written, `start` is the first instruction of the copy that follows it in the pattern: it continues there.
 */
const repeat = (part: Part, min: number, max: number, isGreedy: boolean): Part => {
  const repeated = createPart([part], min === 0 || part.isNullable, (writer, next) => {
    const addSplit = (partStart: number) => writer.add(createSplit(partStart, next, isGreedy));
    let start = next;
    if (max < 0) {
      // The split after the part goes back to the part or on to `next`. It is written first, and replaced when the
      // part's start is known.
      const split = addSplit(next);
      const partStart = writer.write(part, split);
      writer.instructions[split] = createSplit(partStart, next, isGreedy);
      // `x+` starts with x, `x*` with the split. If x can match the empty text, Go compiles `x*` as `(x+)?`, with a
      // second split before x.
      start = min > 0 ? partStart : part.isNullable ? addSplit(partStart) : split;
    }
    for (let count = min; count < max; count++) start = addSplit(writer.write(part, start));
    for (let count = max < 0 ? 1 : 0; count < min; count++) start = writer.write(part, start);
    return start;
  });
  // As in upstream, `x{0}` counts as one copy, whatever is in x.
  return { ...repeated, copies: max === 0 ? 1 : part.copies * Math.max(min, max, 1) };
};

/** A group whose `)` wasn't read yet: the choices before the last `|`, and the parts after it. */
interface Group {
  readonly flagsOutside: ReadonlySet<string>;
  readonly isCapture: boolean;
  readonly choices: Part[];
  parts: Part[];
}

/** A parser of Go's regular expressions. It returns the pattern as a part. */
class Parser {
  readonly #text: string;
  /** The index of the last `:]`. After it, no `[:` begins a named set, so the rest isn't searched for `:]` again. */
  readonly #lastNameEnd: number;
  #position = 0;
  #size = 0;
  #flags: ReadonlySet<string> = new Set();
  readonly #groups: Group[] = [];
  #group: Group = { flagsOutside: this.#flags, isCapture: false, choices: [], parts: [] };

  constructor(text: string) {
    this.#text = text;
    this.#lastNameEnd = text.lastIndexOf(":]");
  }

  parse(): Part {
    // The index of a repetition that ends at the current position. Another repetition must not follow it.
    let repetition = -1;
    while (this.#position < this.#text.length) {
      const start = this.#position;
      const found = this.#read(/[*+?]|\{(0|[1-9]\d*)(?:(,)(0|[1-9]\d*)?)?\}/y);
      if (found) this.#repeat(start, found, repetition);
      else this.#parseNext(start);
      repetition = found ? start : -1;
    }
    if (this.#groups.length > 0) throw createError("missing closing )", this.#text);
    return this.#closeChoices();
  }

  /** Parses the next part, which is no repetition. */
  #parseNext(start: number): void {
    const position = this.#read(/[$^]|\\[ABbz]/y);
    if (position) {
      const [usual, multiline] = positions[position[0]] as readonly [number, number];
      this.#addInstruction({ kind: "check", conditions: this.#flags.has("m") ? multiline : usual });
      return;
    }
    const [, quoted] = this.#read(/\\Q(.*?)(?:\\E|$)/sy) ?? [];
    if (quoted !== undefined) {
      for (const character of quoted) this.#addLiteral(character.codePointAt(0) as number);
      return;
    }
    const set = this.#readSet(start);
    const character = set === undefined ? this.#readCharacter() : "";
    if (set !== undefined) this.#addClass(set);
    else if (character === "(") this.#openGroup(start);
    else if (character === ")") this.#closeGroup();
    else if (character === "|") this.#closeChoice();
    else if (character === ".") this.#addClass(this.#flags.has("s") ? "[^]" : "[^\\n]");
    else if (character === "[") this.#addClass(this.#parseClass(start));
    else this.#addLiteral(this.#toCode(character, start));
  }

  #createError(fault: string, start: number): EvaluationError {
    return createError(fault, this.#text.slice(start, this.#position));
  }

  /** Consumes the text that a sticky pattern matches at the current position; returns null if it doesn't match. */
  #read(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.#position;
    const found = pattern.exec(this.#text);
    if (found) this.#position = pattern.lastIndex;
    return found;
  }

  /** Consumes and returns the next character; an empty text at the end. */
  #readCharacter(): string {
    const [character = ""] = this.#read(/./suy) ?? [];
    return character;
  }

  #addInstruction(instruction: Partial<Instruction>): void {
    if (++this.#size > maxInstructions) throw createError("expression too large", this.#text);
    const isNullable = instruction.kind === "check";
    this.#group.parts.push(createPart([], isNullable, (writer, next) => writer.add({ ...instruction, next })));
  }

  #addClass(source: string): void {
    this.#addInstruction({ kind: "read", accepts: createTest(source, this.#flags.has("i")) });
  }

  #addLiteral(code: number): void {
    if (this.#flags.has("i")) this.#addClass(toEscape(code));
    else this.#addInstruction({ kind: "read", accepts: (other) => other === code });
  }

  #repeat(start: number, [operator, least, comma, most]: RegExpExecArray, lastRepetition: number): void {
    const min = operator === "+" ? 1 : Number(least ?? 0);
    const max = operator === "?" ? 1 : least !== undefined && comma === undefined ? min : Number(most ?? -1);
    if (min > 1000 || max > 1000 || (max >= 0 && min > max)) throw this.#createError("invalid repeat count", start);
    const isGreedy = (this.#read(/\?/y) !== null) === this.#flags.has("U");
    if (lastRepetition >= 0) throw this.#createError("invalid nested repetition operator", lastRepetition);
    const part = this.#group.parts.pop();
    if (!part) throw this.#createError("missing argument to repetition operator", start);
    const repeated = repeat(part, min, max, isGreedy);
    if (Math.max(min, max) >= 2 && repeated.copies > maxCopies) throw this.#createError("invalid repeat count", start);
    this.#group.parts.push(repeated);
  }

  #openGroup(start: number): void {
    const flagsOutside = this.#flags;
    let isCapture = true;
    if (this.#read(/\?P?<(?=.)/sy)) {
      if (this.#read(/[^>]*>/y) === null) throw createError("invalid named capture", this.#text.slice(start));
      const capture = this.#text.slice(start, this.#position);
      if (!/^\(\?P?<\w+>$/.test(capture)) throw createError("invalid named capture", capture);
    } else if (this.#text[this.#position] === "?") {
      const [matchedText, added = "", removed = "", end] = this.#read(/\?([Uims]*)(?:-([Uims]+))?([:)])/y) ?? [];
      if (matchedText === undefined) {
        this.#read(/\?[Uims]*(?:-[Uims]*)?.?/suy);
        throw this.#createError("invalid or unsupported Perl syntax", start);
      }
      this.#flags = new Set([...this.#flags, ...added].filter((flag) => !removed.includes(flag)));
      if (end === ")") return;
      isCapture = false;
    }
    this.#groups.push(this.#group);
    this.#group = { flagsOutside, isCapture, choices: [], parts: [] };
  }

  #closeChoice(): void {
    this.#group.choices.push(join(this.#group.parts));
    this.#group.parts = [];
  }

  #closeChoices(): Part {
    const { choices, parts } = this.#group;
    return choices.length === 0 ? join(parts) : createAlternation([...choices, join(parts)]);
  }

  #closeGroup(): void {
    const outer = this.#groups.pop();
    if (!outer) throw createError("unexpected )", this.#text);
    const { flagsOutside, isCapture } = this.#group;
    const part = this.#closeChoices();
    this.#group = outer;
    this.#flags = flagsOutside;
    this.#group.parts.push(isCapture ? createPart([part], part.isNullable, part.write) : part);
  }

  /** Parses a set such as `\d` or `\pL`, and returns it as a class of JavaScript; undefined if there is none. */
  #readSet(start: number): string | undefined {
    const [, letter] = this.#read(/\\([DSWdsw])/y) ?? [];
    if (letter) return `[${letter < "a" ? "^" : ""}${letterSets[letter.toLowerCase()]}]`;
    const property = this.#read(/\\([Pp])(?:\{([^}]*)\}|[^{]|$|(\{))/suy);
    if (!property) return undefined;
    const [matchedText, sign, braced, open] = property;
    if (open) throw createError("invalid character class range", this.#text.slice(start));
    const name = braced ?? matchedText.slice(2);
    const found = findProperty(name.replace(/^\^/, ""));
    if (!found) throw this.#createError("invalid character class range", start);
    return `[${(sign === "P") === name.startsWith("^") ? "" : "^"}\\p{${found}}]`;
  }

  /** Returns the code of a character that was consumed. If it is a backslash, parses the escape. */
  #toCode(character: string, start: number): number {
    return character === "\\" ? this.#parseEscape(start) : (character.codePointAt(0) as number);
  }

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

  /** Parses the digits after `\x`, such as `41` or `{1F600}`. */
  #parseHexadecimal(start: number): number {
    const [, two, braced] = this.#read(/([\da-f]{2})|\{0*(10[\da-f]{4}|[\da-f]{1,5})\}/iy) ?? [];
    const digits = two ?? braced;
    if (digits !== undefined) return Number.parseInt(digits, 16);
    // The error shows two characters, or after a brace all characters up to the first wrong one.
    this.#read(/\{0*(?:10[\da-f]{0,4}|[\da-f]{0,5}).?|.{0,2}/isuy);
    throw this.#createError("invalid escape sequence", start);
  }

  /** Parses a class such as `[^a-z\d]`, and returns it as a pattern of JavaScript. */
  #parseClass(start: number): string {
    const isNegated = this.#read(/\^/y) !== null;
    const sets: string[] = [];
    let ranges = "";
    for (let isFirst = true; isFirst || !this.#read(/\]/y); isFirst = false) {
      const begin = this.#position;
      const named = begin < this.#lastNameEnd ? this.#read(/\[:(\^?)(.*?):\]/sy) : null;
      if (named) {
        const [matchedText, sign, name = ""] = named;
        if (!Object.hasOwn(namedSets, name)) throw createError("invalid character class range", matchedText);
        sets.push(`[${sign}${namedSets[name]}]`);
        continue;
      }
      const set = this.#readSet(begin);
      if (set !== undefined) {
        sets.push(set);
        continue;
      }
      const low = this.#parseClassCharacter(start);
      const high = this.#read(/-(?=[^\]])/sy) ? this.#parseClassCharacter(start) : low;
      if (high < low) throw this.#createError("invalid character class range", begin);
      ranges += `${toEscape(low)}-${toEscape(high)}`;
    }
    if (ranges !== "") sets.push(`[${ranges}]`);
    const choice = sets.join("|");
    return isNegated ? `(?!${choice})[^]` : choice;
  }

  #parseClassCharacter(start: number): number {
    const begin = this.#position;
    const character = this.#readCharacter();
    if (character === "") throw createError("missing closing ]", this.#text.slice(start));
    return this.#toCode(character, begin);
  }
}

/** Compiles a pattern. Throws upstream's error if it is invalid. */
export const compileProgram = (source: string): PatternProgram => {
  const part = new Parser(source).parse();
  if (part.height > maxLevels) throw createError("expression nests too deeply", source);
  const writer = new Writer(source);
  const start = writer.write(part, writer.add({ kind: "match" }));
  return { instructions: writer.instructions, start };
};
