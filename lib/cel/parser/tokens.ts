import { countCodePoints } from "../values.ts";
import type { Issue } from "./syntax.ts";

/** A word or sign of an expression. */
export interface Token {
  /**
   * The kind is `identifier`, `quoted` (a name in backticks), `int`, `uint`, `double`, `string`, `bytes` or `end`. The
   * kind of an operator or a keyword (`true`, `false`, `null`, `in`) is its text.
   */
  readonly kind: string;
  readonly text: string;
  /** The index at which the token begins, in code points. */
  readonly offset: number;
}

const escapeSequence = String.raw`\\(?:[abfnrtv"'\\?\x60]|[0-3][0-7]{2}|[xX][\da-fA-F]{2}|u[\da-fA-F]{4}|U[\da-fA-F]{8})`;
const strings = [`"`, `'`].flatMap((quote) => [
  `${quote}{3}(?:[^\\\\]|${escapeSequence})*?${quote}{3}`,
  `${quote}(?:[^\\\\${quote}\\n\\r]|${escapeSequence})*${quote}`,
  `[rR]${quote}{3}[^]*?${quote}{3}`,
  `[rR]${quote}[^${quote}\\n\\r]*${quote}`,
]);
/** The patterns of the kinds of tokens, ordered so that the first one that matches also matches the longest text. */
const patterns = {
  space: String.raw`[\t \r\n\f]+|//[^\n]*`,
  string: `[bB]?(?:${strings.join("|")})`,
  identifier: String.raw`[a-zA-Z_]\w*`,
  double: String.raw`\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?`,
  uint: String.raw`(?:0x[\da-fA-F]+|\d+)[uU]`,
  int: String.raw`0x[\da-fA-F]+|\d+`,
  quoted: String.raw`\x60[\w./ -]+\x60`,
  operator: String.raw`[=!<>]=|&&|\|\||[-[\]{}().,!?:+*/%<>]`,
  /** Matches text that is no token: an unclosed quote and the rest of its line, or any single character. */
  broken: String.raw`["'][^\n\r]*|[\ud800-\udbff][\udc00-\udfff]|[^]`,
};
/** The kind of each group of the regular expression `token`. The group 0, the whole match, has none. */
const kindsByGroup = ["", ...Object.keys(patterns)];
const groups = Object.values(patterns).map((pattern) => `(${pattern})`);
const token = new RegExp(groups.join("|"), "g");
export const keywords: ReadonlySet<string> = new Set(["true", "false", "null", "in"]);

/** Returns the tokens of a text, followed by a token of kind `end`. Text that is no token is added to the issues. */
export const readTokens = (text: string, issues: Issue[]): readonly Token[] => {
  const tokens: Token[] = [];
  const hasSurrogatePairs = countCodePoints(text) < text.length;
  let offset = 0;
  for (const match of text.matchAll(token)) {
    const [taken] = match;
    // Each kind has one group of the regular expression. The group that matched is equal to the whole match.
    const kind = kindsByGroup[match.indexOf(taken, 1)] as string;
    if (kind === "broken") issues.push({ offset, message: `Syntax error: token recognition error at: '${taken}'` });
    else if (kind === "operator" || keywords.has(taken)) tokens.push({ kind: taken, text: taken, offset });
    else if (kind === "string" && /^b/i.test(taken)) tokens.push({ kind: "bytes", text: taken, offset });
    else if (kind !== "space") tokens.push({ kind, text: taken, offset });
    offset += hasSurrogatePairs ? countCodePoints(taken) : taken.length;
  }
  return [...tokens, { kind: "end", text: "", offset }];
};

const characters: Record<string, string> = { a: "\x07", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t", v: "\v" };
const escapeParts = /\\(?:[xX](..)|u(.{4})|U(.{8})|(\d{3})|(.))/g;

/** Returns the text of a string literal, with its escapes replaced; undefined if an escape is no code point. */
export const parseString = (literal: string): string | undefined =>
  replaceEscapes(literal, (code) => {
    const isCodePoint = code <= 0x10ffff && (code & ~0x7ff) !== 0xd800;
    return isCodePoint ? String.fromCodePoint(code) : undefined;
  });

/** Returns the bytes of a bytes literal, with its escapes replaced; undefined if it has an escape `\u` or `\U`. */
export const parseBytes = (literal: string): Uint8Array | undefined => {
  const text = replaceEscapes(Buffer.from(literal.slice(1)).toString("latin1"), (code, isByte) =>
    isByte ? String.fromCharCode(code) : undefined,
  );
  return text === undefined ? undefined : Uint8Array.from(Buffer.from(text, "latin1"));
};

/** Returns the text between quotes, with escapes replaced; undefined if `replace` returns undefined for an escape. */
const replaceEscapes = (
  literal: string,
  replace: (code: number, isByte: boolean) => string | undefined,
): string | undefined => {
  const [, prefix = "", quotes = ""] = /^([rR]?)("""|'''|["'])/.exec(literal) ?? [];
  const text = literal.slice(prefix.length + quotes.length, -quotes.length).replace(/\r\n?/g, "\n");
  if (prefix !== "" || !text.includes("\\")) return text;
  let isValid = true;
  const replaced = text.replace(escapeParts, (_, byte, short, long, octal, character) => {
    if (character !== undefined) return characters[character] ?? character;
    const code = octal ? Number.parseInt(octal, 8) : Number.parseInt(byte ?? short ?? long, 16);
    const replacement = replace(code, !(short || long));
    isValid &&= replacement !== undefined;
    return replacement ?? "";
  });
  return isValid ? replaced : undefined;
};
