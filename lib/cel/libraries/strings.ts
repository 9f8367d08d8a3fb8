import { countTraversal, getActualSize, getInnerSize } from "../cost.ts";
import { type FunctionDeclaration, member, overload } from "../functions.ts";
import { dyn, int, listOf, string } from "../types.ts";
import { countCodePoints, EvaluationError, type Value } from "../values.ts";
import { formatText, formatValue, quoteEscapes } from "./format-text.ts";
import { countListTraversal } from "./lists.ts";

type Int = number | bigint;

/** Reports whether a text has characters that are two units of JavaScript's strings. */
const hasPairs = (text: string): boolean => /[\ud800-\udfff]/.test(text);

/** Returns where a code point begins in JavaScript's units; undefined if the text is shorter. */
const findUnit = (text: string, index: Int): number | undefined => {
  const count = Number(index);
  if (count < 0 || count > text.length) return undefined;
  if (!hasPairs(text)) return count;
  let unit = 0;
  for (let passed = 0; passed < count; passed++) {
    if (unit >= text.length) return undefined;
    unit += (text.codePointAt(unit) as number) > 0xffff ? 2 : 1;
  }
  return unit;
};

const getUnit = (text: string, index: Int): number => {
  const unit = findUnit(text, index);
  if (unit === undefined) throw createRangeError(index);
  return unit;
};

const createRangeError = (index: Int): EvaluationError => new EvaluationError(`index out of range: ${index}`);

/** Returns the index of the code point that begins at a unit; -1 for -1. */
const toIndex = (text: string, unit: number): number =>
  unit > 0 && hasPairs(text) ? countCodePoints(text.slice(0, unit)) : unit;

const getCharacter = (text: string, index: Int): string => {
  const code = text.codePointAt(getUnit(text, index));
  return code === undefined ? "" : String.fromCodePoint(code);
};

const findFirst = (text: string, part: string, offset: Int = 0): Int => {
  // Upstream doesn't check the offset if it searches an empty text.
  if (part === "") return offset;
  if (offset < 0) throw createRangeError(offset);
  const start = findUnit(text, offset);
  return start === undefined ? -1 : toIndex(text, text.indexOf(part, start));
};

const findLast = (text: string, part: string, offset?: Int): Int => {
  if (part === "") return offset ?? countCodePoints(text);
  if (offset === undefined) return toIndex(text, text.lastIndexOf(part));
  if (offset < 0) throw createRangeError(offset);
  const start = findUnit(text, offset);
  return start === undefined || start === text.length ? -1 : toIndex(text, text.lastIndexOf(part, start));
};

const split = (text: string, separator: string, count: Int = -1): string[] => {
  const limit = count < 0 ? Number.POSITIVE_INFINITY : Number(count);
  if (limit === 0) return [];
  const parts = separator === "" ? Array.from(text) : text.split(separator);
  if (parts.length <= limit) return parts;
  return [...parts.slice(0, limit - 1), parts.slice(limit - 1).join(separator)];
};

const replace = (text: string, old: string, replacement: string, count: Int = -1): string => {
  const limit = count < 0 ? Number.POSITIVE_INFINITY : Number(count);
  if (limit === 0) return text;
  if (old !== "") return split(text, old, limit + 1).join(replacement);
  // An empty text is found before each character and at the end.
  const parts = ["", ...split(text, "", limit)];
  if (limit > countCodePoints(text)) parts.push("");
  return parts.join(replacement);
};

const substring = (text: string, start: Int, end: Int): string => {
  if (start > end) throw new EvaluationError(`invalid substring range. start: ${start}, end: ${end}`);
  return text.slice(getUnit(text, start), getUnit(text, end));
};

/** Reports whether a unit is white space for Go. JavaScript's trim also removes U+FEFF, and leaves U+0085. */
const isSpace = (text: string, unit: number): boolean =>
  /[\t-\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/.test(text.charAt(unit));

const trim = (text: string): string => {
  let [start, end] = [0, text.length];
  while (start < end && isSpace(text, start)) start++;
  while (start < end && isSpace(text, end - 1)) end--;
  return text.slice(start, end);
};

const quote = (text: string): string =>
  `"${text.toWellFormed().replace(/[\p{Cc}\\"]/gu, (character) => quoteEscapes[character] ?? character)}"`;

const join = (list: readonly Value[], separator = ""): string => {
  for (const element of list) {
    if (typeof element !== "string") throw new EvaluationError(`join: invalid input: ${formatValue(element)}`);
  }
  return list.join(separator);
};

const countText = ([text]: readonly Value[]): number => countTraversal(getActualSize(text as Value));
const countInner = ([text = null]: readonly Value[]): number => countTraversal(getInnerSize(text));
const countTextTwice = ([text]: readonly Value[]): number => countTraversal(getActualSize(text as Value) * 2);

/** Version 2 of the strings library of cel-go. */
export const stringFunctions: readonly FunctionDeclaration[] = [
  { name: "charAt", overloads: [member("string_char_at_int", [string, int], string, getCharacter)] },
  {
    name: "indexOf",
    overloads: [
      member("string_index_of_string", [string, string], int, findFirst),
      member("string_index_of_string_int", [string, string, int], int, findFirst),
    ],
    cost: countListTraversal,
  },
  {
    name: "lastIndexOf",
    overloads: [
      member("string_last_index_of_string", [string, string], int, findLast),
      member("string_last_index_of_string_int", [string, string, int], int, findLast),
    ],
    cost: countListTraversal,
  },
  {
    name: "lowerAscii",
    overloads: [
      member("string_lower_ascii", [string], string, (text: string) =>
        text.replace(/[A-Z]+/g, (part) => part.toLowerCase()),
      ),
    ],
    cost: countText,
  },
  {
    name: "upperAscii",
    overloads: [
      member("string_upper_ascii", [string], string, (text: string) =>
        text.replace(/[a-z]+/g, (part) => part.toUpperCase()),
      ),
    ],
    cost: countText,
  },
  {
    name: "replace",
    overloads: [
      member("string_replace_string_string", [string, string, string], string, replace),
      member("string_replace_string_string_int", [string, string, string, int], string, replace),
    ],
    cost: countTextTwice,
  },
  {
    name: "split",
    overloads: [
      member("string_split_string", [string, string], listOf(string), split),
      member("string_split_string_int", [string, string, int], listOf(string), split),
    ],
    cost: countTextTwice,
  },
  {
    name: "substring",
    overloads: [
      member("string_substring_int", [string, int], string, (text: string, start: Int) =>
        text.slice(getUnit(text, start)),
      ),
      member("string_substring_int_int", [string, int, int], string, substring),
    ],
    cost: countText,
  },
  { name: "trim", overloads: [member("string_trim", [string], string, trim)], cost: countText },
  {
    name: "join",
    overloads: [
      member("list_join", [listOf(string)], string, join),
      member("list_join_string", [listOf(string), string], string, join),
    ],
    cost: (_args, result) => countTraversal(getActualSize(result) * 2),
  },
  { name: "strings.quote", overloads: [overload("strings_quote", [string], string, quote, countInner)] },
  { name: "format", overloads: [member("string_format", [string, listOf(dyn)], string, formatText, countInner)] },
];
