import type { Issue } from "./syntax.ts";
import { countCodePoints } from "./values.ts";

export interface Token {
  /**
   * `identifier`, `quoted` (a name in backticks), `int`, `uint`, `double`, `string`, `bytes`, `end`, or the text of an
   * operator or of one of the keywords `true`, `false`, `null` and `in`.
   */
  readonly kind: string;
  readonly text: string;
  /** Where it begins in the text, in code points. */
  readonly offset: number;
}

const escapeSequence = String.raw`\\(?:[abfnrtv"'\\?\x60]|[0-3][0-7][0-7]|[xX][\da-fA-F]{2}|u[\da-fA-F]{4}|U[\da-fA-F]{8})`;
const strings = [`"`, `'`].flatMap((quote) => [
  `${quote}{3}(?:${escapeSequence}|[^\\\\])*?${quote}{3}`,
  `${quote}(?:${escapeSequence}|[^\\\\${quote}\\n\\r])*${quote}`,
  `[rR]${quote}{3}[^]*?${quote}{3}`,
  `[rR]${quote}[^${quote}\\n\\r]*${quote}`,
]);
/** The kinds of tokens by their patterns; where several match, the first is the longest. */
const patterns = {
  space: String.raw`[\t \r\n\f]+|//[^\n]*`,
  string: strings.join("|"),
  bytes: `[bB](?:${strings.join("|")})`,
  double: String.raw`\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?`,
  uint: String.raw`(?:0x[\da-fA-F]+|\d+)[uU]`,
  int: String.raw`0x[\da-fA-F]+|\d+`,
  identifier: String.raw`[a-zA-Z_]\w*`,
  quoted: String.raw`\x60[\w./ -]+\x60`,
  operator: String.raw`[=!<>]=|&&|\|\||[-[\]{}().,!?:+*/%<>]`,
};
const kinds = Object.keys(patterns);
const token = new RegExp(
  Object.values(patterns)
    .map((pattern) => `(${pattern})`)
    .join("|"),
  "y",
);
const keywords = new Set(["true", "false", "null", "in"]);

/** The most frequent tokens as far as no other pattern matches them: this takes far less time to compile. */
const frequentKinds = ["space", "identifier", "string", "int", "operator"];
const frequentToken =
  /([\t \r\n\f]+)|([a-zA-Z_]\w*(?![\w"']))|("[^"\\\n\r]+"|'[^'\\\n\r]+'|""(?!")|''(?!'))|(\d+(?![\w.]))|([=!<>]=|&&|\|\||[-[\]{}(),!?:+*%<>]|\.(?!\d))/y;

/** What a token can begin with that isn't one. Upstream goes on after it and the character that follows it. */
const brokenToken = new RegExp(
  String.raw`(?:[=&|]|\x60[\w./ -]*|(['"])(?:${escapeSequence}|(?!\1)[^\\\n\r])*(?:\\(?:[0-3][0-7]?|[xX][\da-fA-F]?|u[\da-fA-F]{0,3}|U[\da-fA-F]{0,7})?)?)?`,
  "y",
);

const readAt = (pattern: RegExp, text: string, index: number): RegExpExecArray | null => {
  pattern.lastIndex = index;
  return pattern.exec(text);
};

/** Returns a function that returns the next token of a text. What is no token is reported, and left out. */
export const readTokens = (text: string, report: (issue: Issue) => void): (() => Token) => {
  const hasPairs = countCodePoints(text) < text.length;
  let index = 0;
  let offset = 0;
  const take = (end: number): string => {
    const taken = text.slice(index, end);
    index = end;
    offset += hasPairs ? countCodePoints(taken) : taken.length;
    return taken;
  };
  return () => {
    while (index < text.length) {
      const start = offset;
      const match = readAt(frequentToken, text, index) ?? readAt(token, text, index);
      if (!match) {
        readAt(brokenToken, text, index);
        const next = brokenToken.lastIndex;
        const broken = take(next + ((text.codePointAt(next) ?? 0) > 0xffff ? 2 : 1));
        report({ offset: start, message: `Syntax error: token recognition error at: '${broken}'` });
        continue;
      }
      const names = match.length > frequentKinds.length + 1 ? kinds : frequentKinds;
      const kind = names[match.findIndex((group, position) => position > 0 && group !== undefined) - 1] as string;
      const taken = take(index + match[0].length);
      if (kind === "space") continue;
      return { kind: kind === "operator" || keywords.has(taken) ? taken : kind, text: taken, offset: start };
    }
    return { kind: "end", text: "", offset };
  };
};

const characters: Record<string, string> = { a: "\x07", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t", v: "\v" };
const escapeParts = /\\(?:[xX](..)|u(.{4})|U(.{8})|(\d{3})|(.))/g;

/** Returns the text between the quotes of a string, with its escapes replaced; undefined if one is no code point. */
export const parseString = (literal: string): string | undefined => {
  const [quote, first] = literal;
  if ((quote === "'" || quote === '"') && (first !== quote || literal.length === 2) && !literal.includes("\\"))
    return literal.slice(1, -1);
  let isValid = true;
  const text = replaceEscapes(literal, (code) => {
    const isCodePoint = code <= 0x10ffff && (code & ~0x7ff) !== 0xd800;
    isValid &&= isCodePoint;
    return isCodePoint ? String.fromCodePoint(code) : "";
  });
  return isValid ? text : undefined;
};

/** Returns the bytes between the quotes, with escapes replaced; undefined if one names a code point: `\u` or `\U`. */
export const parseBytes = (literal: string): Uint8Array | undefined => {
  let isValid = true;
  const bytes = replaceEscapes(Buffer.from(literal.slice(1)).toString("latin1"), (code, isByte) => {
    isValid &&= isByte;
    return String.fromCharCode(code);
  });
  return isValid ? Uint8Array.from(bytes, (character) => character.charCodeAt(0)) : undefined;
};

const replaceEscapes = (literal: string, replace: (code: number, isByte: boolean) => string): string => {
  const isRaw = /^[rR]/.test(literal);
  const quoted = literal.slice(Number(isRaw)).replace(/\r\n?/g, "\n");
  const size = /^("""|''')/.test(quoted) ? 3 : 1;
  const text = quoted.slice(size, -size);
  if (isRaw) return text;
  return text.replace(escapeParts, (_, byte, short, long, octal, character) => {
    if (character !== undefined) return characters[character] ?? character;
    return replace(octal ? Number.parseInt(octal, 8) : Number.parseInt(byte ?? short ?? long, 16), !(short || long));
  });
};
