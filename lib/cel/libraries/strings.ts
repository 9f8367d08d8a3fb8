import { quoteAsGo } from "../../objects/go/quoted.ts";
import { trimAsGo } from "../../objects/go/trimmed.ts";
import {
  countReading,
  countReadingTwice,
  countStandardReading,
  countTraversal,
  getActualSize,
} from "../cost-formulas.ts";
import { declareMethod, type FunctionDeclaration, member, overload } from "../functions.ts";
import { dyn, int, listOf, string } from "../types.ts";
import { countCodePoints, EvaluationError, type Value } from "../values.ts";
import { findFormatIssue, formatText } from "./format-text.ts";
import { countParts } from "./lists.ts";
import { formatValue, hasPairs, joinTexts } from "./value-text.ts";

type Int = number | bigint;

/** Converts an index of code points to an index of UTF-16 units; undefined if the text is shorter. */
const findUtf16Index = (text: string, index: Int): number | undefined => {
  const count = Number(index);
  if (count < 0 || count > text.length) return undefined;
  if (!hasPairs(text)) return count;
  let utf16Index = 0;
  for (let codePoints = 0; codePoints < count; codePoints++) {
    if (utf16Index >= text.length) return undefined;
    utf16Index += (text.codePointAt(utf16Index) as number) > 0xffff ? 2 : 1;
  }
  return utf16Index;
};

/** Converts an index of code points to an index of UTF-16 units. Throws if the text is shorter. */
const getUtf16Index = (text: string, index: Int): number => {
  const utf16Index = findUtf16Index(text, index);
  if (utf16Index === undefined) throw createRangeError(index);
  return utf16Index;
};

const createRangeError = (index: Int): EvaluationError => new EvaluationError(`index out of range: ${index}`);

/** Converts an index of UTF-16 units to an index of code points. Returns -1 for -1. */
const toIndex = (text: string, utf16Index: number): number =>
  utf16Index > 0 && hasPairs(text) ? countCodePoints(text.slice(0, utf16Index)) : utf16Index;

const getCharacter = (text: string, index: Int): string => {
  const code = text.codePointAt(getUtf16Index(text, index));
  return code === undefined ? "" : String.fromCodePoint(code);
};

/** Returns the index at which an empty text is found: the offset, but at most the size of the text. */
const limitOffset = (text: string, offset: Int): Int => {
  const size = countCodePoints(text);
  return offset > size ? size : offset;
};

const findFirst = (text: string, part: string, offset: Int = 0): Int => {
  if (offset < 0) throw createRangeError(offset);
  if (part === "") return limitOffset(text, offset);
  const start = findUtf16Index(text, offset);
  return start === undefined ? -1 : toIndex(text, text.indexOf(part, start));
};

const findLast = (text: string, part: string, offset?: Int): Int => {
  if (offset === undefined) return toIndex(text, text.lastIndexOf(part));
  if (offset < 0) throw createRangeError(offset);
  if (part === "") return limitOffset(text, offset);
  const start = findUtf16Index(text, offset);
  // As in cel-go, an offset at or after the end of the text gives -1, even if the text contains the part.
  return start === undefined || start === text.length ? -1 : toIndex(text, text.lastIndexOf(part, start));
};

const split = (text: string, separator: string, count: Int = -1): string[] => {
  const limit = count < 0 ? Number.POSITIVE_INFINITY : Number(count);
  if (limit === 0) return [];
  const parts = separator === "" ? Array.from(text) : text.split(separator);
  if (parts.length <= limit) return parts;
  return [...parts.slice(0, limit - 1), parts.slice(limit - 1).join(separator)];
};

/** Replaces the first `count` occurrences of a text; all, if `count` is negative. */
const replace = (text: string, old: string, replacement: string, count: Int = -1): string => {
  const limit = count < 0 ? Number.POSITIVE_INFINITY : Number(count);
  if (limit === 0) return text;
  if (old !== "") return joinTexts(split(text, old, limit + 1), replacement);
  // An empty text is found before each character and at the end. joinTexts puts the replacement between parts, so an
  // empty part before the first character is needed, and another one after the last character to replace at the end.
  const parts = ["", ...split(text, "", limit)];
  if (limit > countCodePoints(text)) parts.push("");
  return joinTexts(parts, replacement);
};

const substring = (text: string, start: Int, end?: Int): string => {
  if (end === undefined) return text.slice(getUtf16Index(text, start));
  if (start > end) throw new EvaluationError(`invalid substring range. start: ${start}, end: ${end}`);
  return text.slice(getUtf16Index(text, start), getUtf16Index(text, end));
};

// The characters from the bell (\cG) to \r have escapes such as \n.
const quote = (text: string): string =>
  `"${text.toWellFormed().replace(/[\cG-\r"\\]/g, (character) => quoteAsGo(character).slice(1, -1))}"`;

const join = (list: readonly Value[], separator = ""): string => {
  for (const element of list) {
    if (typeof element !== "string") throw new EvaluationError(`join: invalid input: ${formatValue(element)}`);
  }
  return joinTexts(list as readonly string[], separator);
};

const toLower = (text: string) => text.replace(/[A-Z]+/g, (part) => part.toLowerCase());
const toUpper = (text: string) => text.replace(/[a-z]+/g, (part) => part.toUpperCase());

const countJoined = (_: readonly Value[], result: Value) => countTraversal(getActualSize(result) * 2);

const texts = listOf(string);
const threeTexts = [string, string, string];

/** Version 2 of cel-go's strings library. The last argument computes a call's cost: countParts that of a search. */
export const stringFunctions: readonly FunctionDeclaration[] = [
  declareMethod("charAt", "string_char_at_int", [string, int], string, getCharacter),
  declareMethod("indexOf", "string_index_of_string", [string, string], int, findFirst, countParts),
  declareMethod("indexOf", "string_index_of_string_int", [string, string, int], int, findFirst, countParts),
  declareMethod("lastIndexOf", "string_last_index_of_string", [string, string], int, findLast, countParts),
  declareMethod("lastIndexOf", "string_last_index_of_string_int", [string, string, int], int, findLast, countParts),
  declareMethod("lowerAscii", "string_lower_ascii", [string], string, toLower, countReading),
  declareMethod("upperAscii", "string_upper_ascii", [string], string, toUpper, countReading),
  declareMethod("replace", "string_replace_string_string", threeTexts, string, replace, countReadingTwice),
  declareMethod(
    "replace",
    "string_replace_string_string_int",
    [...threeTexts, int],
    string,
    replace,
    countReadingTwice,
  ),
  declareMethod("split", "string_split_string", [string, string], texts, split, countReadingTwice),
  declareMethod("split", "string_split_string_int", [string, string, int], texts, split, countReadingTwice),
  declareMethod("substring", "string_substring_int", [string, int], string, substring, countReading),
  declareMethod("substring", "string_substring_int_int", [string, int, int], string, substring, countReading),
  declareMethod("trim", "string_trim", [string], string, trimAsGo, countReading),
  declareMethod("join", "list_join", [texts], string, join, countJoined),
  declareMethod("join", "list_join_string", [texts, string], string, join, countJoined),
  { name: "strings.quote", overloads: [overload("strings_quote", [string], string, quote, countStandardReading)] },
  {
    name: "format",
    overloads: [member("string_format", [string, listOf(dyn)], string, formatText, countStandardReading)],
    findIssue: findFormatIssue,
  },
];
