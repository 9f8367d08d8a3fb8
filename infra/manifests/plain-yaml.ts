/** A YAML or JSON document in a text. */
export interface YamlDocumentWithOffsets {
  value: unknown;
  /** The offsets of the document's begin and end. */
  from: number;
  to: number;
  /** The line where the document begins, for instance with `---` or a comment. */
  firstLine: number;
  /** The line where the document's value begins. */
  line: number;
}

/** Returns the value of a plain YAML scalar, which may be no string, for instance of `true` or `0644`. */
type WordReader = (word: string) => unknown;

type OffsetRecorder = (container: object, key: string | number, offset: number) => void;

/**
 * Reads the subset of YAML that nearly all manifests use: maps and lists in block style, values on the line of their
 * key or in literal blocks (`|`), no anchors and no tags. It is several times faster than a full parser, and has the
 * same result. Returns undefined for any other text, also for invalid YAML.
 */
export const readPlainYaml = (
  text: string,
  readWord: WordReader,
): { pieces: YamlDocumentWithOffsets[] } | undefined => {
  if (/[\r\uFEFF]|^[%.]/m.test(text) || !text.endsWith("\n")) return undefined;
  return parseIfPlain(() => {
    const pieces: YamlDocumentWithOffsets[] = [];
    for (let from = 0, line = 1; ; ) {
      const { isMarked, value, contentLine, cursor } = readDocument(text, from, line, readWord);
      const isFirst = pieces.length === 0 && !isMarked;
      const piece = { value, from, to: cursor.at, firstLine: line, line: contentLine };
      // The text before the first `---` is no YAML document if it has only comments.
      if (!isFirst || piece.value !== null) pieces.push(piece);
      if (piece.to === text.length) return { pieces };
      from = piece.to;
      line = cursor.line;
    }
  });
};

/** The value of a document, and the offsets of its members. */
export interface YamlValueWithOffsets {
  value: unknown;
  /** The offset of the value. */
  begin: number;
  /** Returns the offset of a key in a map, or of an item in a list. */
  offsetOf(container: object, key: string | number): number | undefined;
}

/** Reads a YAML document again, now with the offsets of its members; undefined if the document needs a full parser. */
export const locatePlainYaml = (
  text: string,
  { from, firstLine }: YamlDocumentWithOffsets,
  readWord: WordReader,
): YamlValueWithOffsets | undefined =>
  parseIfPlain(() => {
    const { noteOffset, offsetOf } = createMemberOffsetStore();
    const { value, contentAt } = readDocument(text, from, firstLine, readWord, noteOffset);
    return { value, begin: contentAt, offsetOf };
  });

/** Creates a store for the offsets of keys and items in a text. */
export const createMemberOffsetStore = () => {
  const offsets = new Map<object, Map<string | number, number>>();
  return {
    noteOffset: (container: object, key: string | number, offset: number) => {
      const offsetsOfMembers = offsets.get(container) ?? new Map<string | number, number>();
      offsets.set(container, offsetsOfMembers.set(key, offset));
    },
    offsetOf: (container: object, key: string | number) => offsets.get(container)?.get(key),
  };
};

/** Is thrown if a text needs a full parser. */
class NotPlain extends Error {}

const giveUp = (): never => {
  throw new NotPlain();
};

/** Returns undefined if the text has YAML that this parser doesn't know; then the full parser is used. */
const parseIfPlain = <T>(read: () => T): T | undefined => {
  try {
    return read();
  } catch (error) {
    // A RangeError means that a line is too long for a regular expression.
    if (error instanceof NotPlain || error instanceof RangeError) return undefined;
    throw error;
  }
};

/** The state of the parser. */
interface Cursor {
  readonly text: string;
  readonly readWord: WordReader;
  readonly noteOffset: OffsetRecorder | undefined;
  /** The offset of the first character of the line that is not a blank. */
  at: number;
  /** The indentation of the line that is read next; -1 at the end of the document. */
  indent: number;
  line: number;
  /** The number of maps and lists around the value that is read. */
  depth: number;
}

/** The deepest nesting that this parser reads: deeper than usual, but not deep enough to overflow the stack. */
const deepest = 100;

// Character codes.
const tab = 9;
const newline = 10;
const space = 32;
const hash = 35;
const dash = 45;

/** Matches the marker of a new document. */
const marker = /---(?=[ \n])/y;
/** Matches a key with its colon, such as `app.kubernetes.io/name:` or `"a b":`. */
const keys = /(?:[A-Za-z_][\w./-]{0,250}|"[\w ./:@-]{1,250}"):(?=[ \n])/y;
/**
 * Matches a scalar without quotes, up to the end of the line or a comment. The first character begins no other syntax
 * (the Unicode ranges leave out line breaks and control characters). After the first character, `:` is part of the
 * scalar unless a blank or the end of the line follows, and `#` unless it follows a blank.
 */
const plain = /(?:[\w./~+$^(<=\\\u00A1-\u1FFF\u3001-\uD7FF]|-(?=[^\s]))(?:[^\s:#]+|:(?=[^\s])|#| +(?=[^\s#]))*/y;
const quoted = /"(?:[^"\\\n\t]|\\["\\/bfnrt])*"/y;
const singlyQuoted = /'(?:[^'\n\t]|'')*'/y;
/** Matches a list such as `["a", b, 1]`, or `{}`. */
const flow =
  /\[ *(?:(?:"[^"\\\n\t]*"|[A-Za-z/][\w./]*|\d{1,9})(?: *, *(?:"[^"\\\n\t]*"|[A-Za-z/][\w./]*|\d{1,9}))*)? *\]|\{ *\}/y;
/** The patterns of values, by their first character; all other values are plain. */
const patterns: Record<string, RegExp> = { '"': quoted, "'": singlyQuoted, "[": flow, "{": flow };
/** Matches the items of `flow`. */
const items = /"[^"]*"|[^\s,[\]]+/g;
/** Matches blanks and a comment at the end of a line. */
const rest = / *(?: #[^\n]*)?\n/y;
/** Matches scalars without quotes that may be no strings: those that begin like a number, and short ones as `true`. */
const mayBeNonString = /^(?:[-+.~\d]|.{1,5}$)/;

/** Reports whether a key such as `on` means a boolean in YAML 1.1. */
const isBooleanKey = (key: string) => key.length <= 6 && /^(?:y|n|yes|no|on|off|true|false):$/i.test(key);

/** Returns what a pattern matches at an offset. */
const match = (pattern: RegExp, { text }: Cursor, place: number): string | undefined => {
  pattern.lastIndex = place;
  // `test` of a sticky pattern sets `lastIndex` to the end of what it matches. Unlike `exec`, it creates no array.
  return pattern.test(text) ? text.slice(place, pattern.lastIndex) : undefined;
};

/**
 * Reads one YAML document, from its marker or first line to the next marker or to the end of the text. Gives up if the
 * YAML is invalid, or if a full parser might read it differently.
 */
const readDocument = (text: string, from: number, firstLine: number, readWord: WordReader, note?: OffsetRecorder) => {
  const cursor: Cursor = { text, readWord, noteOffset: note, at: from, indent: 0, line: firstLine, depth: 0 };
  const isMarked = match(marker, cursor, from) !== undefined;
  if (isMarked) {
    const restOfLine = match(rest, cursor, from + "---".length) ?? giveUp();
    cursor.line++; // for the line of the marker; moveToContent counts only the lines after it
    moveToContent(cursor, from + "---".length + restOfLine.length);
  } else moveToContent(cursor, from);
  const { at: contentAt, line: contentLine } = cursor;
  // The indent is that of the line to which the cursor was moved, or -1 at the end of the document.
  if (cursor.indent > 0) giveUp(); // the first line is indented
  const value = cursor.indent < 0 ? null : readBlock(cursor);
  if (cursor.indent >= 0) giveUp(); // a line follows that is no part of the value
  return { isMarked, value, contentAt, contentLine, cursor };
};

/** Moves the cursor to the next line with content, from the line that begins at `begin`. Skips comments. */
const moveToContent = (cursor: Cursor, begin: number): void => {
  const { text } = cursor;
  for (let start = begin; ; cursor.line++) {
    let place = start;
    while (text.charCodeAt(place) === space) place++;
    const code = text.charCodeAt(place);
    if (place >= text.length) {
      cursor.at = text.length;
      cursor.indent = -1;
      return;
    }
    if (code !== newline && code !== hash) {
      if (code === tab) giveUp();
      const isMarker = place === start && code === dash && match(marker, cursor, place) !== undefined;
      cursor.at = place;
      cursor.indent = isMarker ? -1 : place - start;
      return;
    }
    start = code === newline ? place + 1 : text.indexOf("\n", place) + 1;
  }
};

/** Moves the cursor behind a value. Gives up if something other than a comment follows, or if the value goes on. */
const finish = (cursor: Cursor, place: number, outerIndent: number): void => {
  const restOfLine = match(rest, cursor, place) ?? giveUp();
  cursor.line++;
  moveToContent(cursor, place + restOfLine.length);
  if (cursor.indent > outerIndent) giveUp();
};

const isItemAt = (text: string, at: number) => text.charCodeAt(at) === dash && /[ \n]/.test(text.charAt(at + 1));

/** Returns the value of a scalar without quotes. Words that may be no strings, such as `true`, need the full parser. */
const readScalar = ({ readWord: readWithFullParser }: Cursor, word: string): unknown => {
  if (/^(?:0|[1-9]\d{0,14})$/.test(word)) return Number(word);
  return mayBeNonString.test(word) ? readWithFullParser(word) : word;
};

/** Reads a value in the line of its key or dash. `outerIndent`: the indentation of the map or list around it. */
const readInline = (cursor: Cursor, place: number, outerIndent: number): unknown => {
  const first = cursor.text.charAt(place);
  if (first === "|") return readLiteral(cursor, place, outerIndent);
  const found = match(patterns[first] ?? plain, cursor, place) ?? giveUp();
  finish(cursor, place + found.length, outerIndent);
  if (first === '"') return found.includes("\\") ? JSON.parse(found) : found.slice(1, -1);
  if (first === "'") return found.slice(1, -1).replaceAll("''", "'");
  // The pattern of a map in braces matches only an empty one.
  if (first === "{") return {};
  if (first !== "[") return readScalar(cursor, found);
  const made: unknown[] = [];
  for (const { 0: item, index } of found.matchAll(items)) {
    cursor.noteOffset?.(made, made.length, place + index);
    made.push(item.startsWith('"') ? item.slice(1, -1) : readScalar(cursor, item));
  }
  return made;
};

/** Reads a literal block: `|` and indented lines. `outerIndent`: the indentation of the map or list around it. */
const readLiteral = (cursor: Cursor, place: number, outerIndent: number): string => {
  const { text } = cursor;
  const [head = giveUp(), chomping] = /^\|([-+]?)\n/.exec(text.slice(place, place + 3)) ?? [];
  let start = place + head.length;
  cursor.line++;
  let blockIndent = 0;
  const lines: string[] = [];
  for (;;) {
    let contentStart = start;
    while (text.charCodeAt(contentStart) === space) contentStart++;
    if (contentStart >= text.length) giveUp();
    const isBlank = text.charCodeAt(contentStart) === newline;
    if (isBlank && contentStart - start > blockIndent) giveUp();
    if (!isBlank) {
      if (text.charCodeAt(contentStart) === tab) giveUp();
      if (blockIndent === 0) blockIndent = contentStart - start;
      if (blockIndent <= outerIndent || blockIndent === 0) giveUp();
      if (contentStart - start < blockIndent) break;
    }
    const end = text.indexOf("\n", start);
    lines.push(isBlank ? "" : text.slice(start + blockIndent, end));
    start = end + 1;
    cursor.line++;
    if (start === text.length) break;
  }
  moveToContent(cursor, start);
  // Gives up on an empty block, or if the next line is indented less than the block but more than the key or dash.
  if (cursor.indent > outerIndent || blockIndent === 0) giveUp();
  if (chomping !== "+") while (lines.at(-1) === "") lines.pop();
  return `${lines.join("\n")}${chomping === "-" ? "" : "\n"}`;
};

/** Reads the value of a key or list item, in its line or below. `outerIndent`: the indentation of its map or list. */
const readValue = (cursor: Cursor, place: number, outerIndent: number, isInMap: boolean): unknown => {
  const { text } = cursor;
  let begin = place;
  while (text.charCodeAt(begin) === space) begin++;
  const code = text.charCodeAt(begin);
  if (code !== newline && !(code === hash && begin > place)) return readInline(cursor, begin, outerIndent);
  cursor.line++;
  moveToContent(cursor, text.indexOf("\n", begin) + 1);
  if (cursor.indent > outerIndent) return readBlock(cursor);
  return isInMap && cursor.indent === outerIndent && isItemAt(text, cursor.at) ? readList(cursor) : null;
};

/** Reads the map at the cursor, up to the first line that is indented less. */
const readMap = (cursor: Cursor): Record<string, unknown> => {
  const isInMap = true;
  const indent = cursor.indent;
  const made: Record<string, unknown> = {};
  while (cursor.indent === indent && !isItemAt(cursor.text, cursor.at)) {
    const found = match(keys, cursor, cursor.at) ?? giveUp();
    const key = found.startsWith('"') ? found.slice(1, -2) : found.slice(0, -1);
    if (Object.hasOwn(made, key) || key === "__proto__" || isBooleanKey(found)) giveUp();
    cursor.noteOffset?.(made, key, cursor.at);
    made[key] = readValue(cursor, cursor.at + found.length, indent, isInMap);
  }
  if (cursor.indent > indent) giveUp();
  return made;
};

/** Reads the list at the cursor, up to the first line that is indented less or is no item. */
const readList = (cursor: Cursor): unknown[] => {
  const { text, noteOffset } = cursor;
  const isInMap = false;
  const indent = cursor.indent;
  const made: unknown[] = [];
  while (cursor.indent === indent && isItemAt(text, cursor.at)) {
    let place = cursor.at + 1;
    while (text.charCodeAt(place) === space) place++;
    // This parser doesn't know the offset of an empty list item, so the full parser must find it.
    if (noteOffset && /[\n#]/.test(text.charAt(place))) giveUp();
    noteOffset?.(made, made.length, place);
    if (match(keys, cursor, place) !== undefined || isItemAt(text, place)) {
      // The item is a map or list itself, and its column is the indentation of its other lines.
      cursor.indent += place - cursor.at;
      cursor.at = place;
      made.push(readBlock(cursor));
    } else made.push(readValue(cursor, cursor.at + 1, indent, isInMap));
  }
  if (cursor.indent > indent) giveUp();
  return made;
};

const readBlock = (cursor: Cursor): unknown => {
  if (++cursor.depth > deepest) giveUp();
  const value = isItemAt(cursor.text, cursor.at) ? readList(cursor) : readMap(cursor);
  cursor.depth--;
  return value;
};
