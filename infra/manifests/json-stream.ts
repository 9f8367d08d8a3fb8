import { exactJson } from "#lib/exact-json.ts";
import { findJsonStringEnd, hasMisreadKey, hasRepeatedKey, isObject, parseJson } from "#lib/json.ts";
import { createMemberOffsetStore, type YamlDocumentWithOffsets, type YamlValueWithOffsets } from "./plain-yaml.ts";

/** The JSON values in a text. */
export interface JsonStreamResult {
  pieces: YamlDocumentWithOffsets[];
  /** The line of the first value that isn't valid JSON; `pieces` are the values before it. */
  invalidJsonLine?: number;
}

/**
 * Reads one JSON value, or several values in sequence, as jq and `kubectl get` print them. Returns undefined for other
 * texts, for instance YAML that begins with a brace. If a second value follows the first, the text is JSON, and the
 * line of the first invalid value is returned (`invalidJsonLine`).
 */
export const readJsonStream = (text: string): JsonStreamResult | undefined => {
  const start = findBraceAfterBlanks(text, 0);
  if (start === undefined) return undefined;
  const parsedText = parseJsonWithUniqueKeys(text);
  if (parsedText !== undefined)
    return { pieces: [{ ...parsedText, from: 0, to: text.length, firstLine: 1, line: getLine(text, start) }] };
  const pieces: YamlDocumentWithOffsets[] = [];
  for (let [from, firstLine] = [0, 1]; from < text.length; ) {
    const begin = findBraceAfterBlanks(text, from);
    const end = begin === undefined ? undefined : findEndOfValue(text, begin);
    const value = end === undefined ? undefined : parseJsonWithUniqueKeys(text.slice(from, end));
    const isLast = end !== undefined && skipBlanks(text, end) === text.length;
    // YAML may begin with a map in braces, too. Only a second value in braces shows that the text is JSON.
    const isFollowedByValue = end !== undefined && findBraceAfterBlanks(text, end) !== undefined;
    if (pieces.length === 0 && !isFollowedByValue) return undefined;
    const to = end === undefined || isLast ? text.length : end;
    const valueLine = firstLine + countNewlines(text, from, begin ?? skipBlanks(text, from));
    if (value === undefined) return { pieces, invalidJsonLine: valueLine };
    pieces.push({ ...value, from, to, firstLine, line: valueLine });
    firstLine += countNewlines(text, from, to);
    from = to;
  }
  return { pieces };
};

/** A map or list that the parser is in. */
interface Level {
  container: object;
  /** The key or index of the member that is read next or now. */
  key: string | number;
  /** True if the next token is a key of a map. */
  isBeforeKey: boolean;
}

/** Parses a JSON manifest and finds the offsets of its members. Returns undefined if it isn't JSON. */
export const parseJsonWithOffsets = (
  text: string,
  { from, to }: YamlDocumentWithOffsets,
): YamlValueWithOffsets | undefined => {
  const begin = findBraceAfterBlanks(text, from);
  const read = begin === undefined ? undefined : parseJsonWithUniqueKeys(text.slice(from, to));
  if (begin === undefined || read === undefined) return undefined;
  const { noteOffset, offsetOf } = createMemberOffsetStore();
  const levels: Level[] = [];
  const token = /[{}[\],"]|[^\s{}[\],:"]+/g;
  token.lastIndex = begin;
  for (let found = token.exec(text); found !== null; found = token.exec(text)) {
    const { 0: sign, index } = found;
    const level = levels.at(-1);
    if (sign === '"') token.lastIndex = findJsonStringEnd(text, index + 1) ?? to;
    if (sign === "}" || sign === "]") {
      levels.pop();
      if (levels.length === 0) break;
    } else if (sign === ",") {
      if (typeof level?.key === "number") level.key++;
      else if (level !== undefined) level.isBeforeKey = true;
    } else if (level?.isBeforeKey) {
      const key: unknown = JSON.parse(text.slice(index, token.lastIndex));
      Object.assign(level, { key, isBeforeKey: false });
      noteOffset(level.container, level.key, index);
    } else {
      // A value begins. In a map, the offset of its key was noted before; in a list, the offset of the value counts.
      if (typeof level?.key === "number") noteOffset(level.container, level.key, index);
      const inner: unknown = level === undefined ? read.value : Reflect.get(level.container, level.key);
      if (isObject(inner))
        levels.push({ container: inner, key: Array.isArray(inner) ? 0 : "", isBeforeKey: sign === "{" });
    }
  }
  return { value: read.value, begin, offsetOf };
};

/** Returns the offset of the first brace or bracket after blanks; undefined if something else comes first. */
const findBraceAfterBlanks = (text: string, from: number): number | undefined => {
  const at = skipBlanks(text, from);
  return text[at] === "{" || text[at] === "[" ? at : undefined;
};

const blank = /[ \t\r\n]*/y;
const skipBlanks = (text: string, from: number): number => {
  blank.lastIndex = from;
  blank.exec(text);
  return blank.lastIndex;
};

/** Returns the offset after the map or list that begins at `begin`. */
const findEndOfValue = (text: string, begin: number): number | undefined => {
  const sign = /[{}[\]"]/g;
  sign.lastIndex = begin;
  let depth = 0;
  for (let found = sign.exec(text)?.[0]; found !== undefined; found = sign.exec(text)?.[0]) {
    if (found === '"') {
      const end = findJsonStringEnd(text, sign.lastIndex);
      if (end === undefined) return undefined;
      sign.lastIndex = end;
    } else depth += found === "{" || found === "[" ? 1 : -1;
    if (depth === 0) return sign.lastIndex;
  }
  return undefined;
};

/** Parses JSON. Returns undefined if it is invalid, has a repeated key, or a key with an escape that V8 misreads. */
const parseJsonWithUniqueKeys = (text: string): { value: unknown } | undefined => {
  const value = parseJson(text, exactJson.parse);
  return value === undefined || hasRepeatedKey(text, value) || hasMisreadKey(text, value) ? undefined : { value };
};

const getLine = (text: string, offset: number): number => 1 + countNewlines(text, 0, offset);

const countNewlines = (text: string, from: number, to: number): number => {
  let count = 0;
  for (let at = text.indexOf("\n", from); at >= 0 && at < to; at = text.indexOf("\n", at + 1)) count++;
  return count;
};
