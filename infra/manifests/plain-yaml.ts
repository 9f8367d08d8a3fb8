/**
 * A YAML or JSON document: its value, its offsets, and the lines where it (`firstLine`) and its content (`line`)
 * begin.
 */
export interface YamlDocumentWithOffsets {
  value: unknown;
  from: number;
  to: number;
  firstLine: number;
  line: number;
}

/** Parses a plain YAML scalar that may be something other than a string. */
type WordReader = (word: string) => unknown;

type OffsetRecorder = (container: object, key: string | number, offset: number) => void;

/**
 * Reads the subset of YAML that nearly all manifests use: maps and lists in block style, with values on their key's
 * line or in literal blocks, without anchors and tags. It is several times faster than a full parser, with the same
 * result. Returns undefined for any other text, valid or not.
 */
export const readPlainYaml = (text: string, readWord: WordReader): YamlDocumentWithOffsets[] | undefined => {
  if (/[\r\uFEFF]|^[%.]/m.test(text) || !text.endsWith("\n")) return undefined;
  return parseIfPlain(() => {
    const pieces: YamlDocumentWithOffsets[] = [];
    for (let from = 0, line = 1; ; ) {
      const { isMarked, value, contentLine, cursor } = readDocument(text, from, line, readWord);
      const isFirst = pieces.length === 0 && !isMarked;
      const piece = { value, from, to: cursor.at, firstLine: line, line: contentLine };
      // The text before the first `---` is no YAML document if it has only comments.
      if (!isFirst || piece.value !== null) pieces.push(piece);
      if (piece.to === text.length) return pieces;
      from = piece.to;
      line = cursor.line;
    }
  });
};

/** The value of a document and the offsets of its members: of a map's keys and of a list's items. */
export interface YamlValueWithOffsets {
  value: unknown;
  begin: number;
  offsetOf(container: object, key: string | number): number | undefined;
}

/** Finds the positions of a YAML document's values; undefined if the YAML needs a full parser. */
export const locatePlainYaml = (
  text: string,
  { from, firstLine }: YamlDocumentWithOffsets,
  readWord: WordReader,
): YamlValueWithOffsets | undefined =>
  parseIfPlain(() => {
    const { note, offsetOf } = createMemberOffsetStore();
    const { value, contentAt } = readDocument(text, from, firstLine, readWord, note);
    return { value, begin: contentAt, offsetOf };
  });

/** Returns a store for the offsets of maps' keys and lists' items in the text. */
export const createMemberOffsetStore = () => {
  const offsets = new Map<object, Map<string | number, number>>();
  return {
    note: (container: object, key: string | number, offset: number) => {
      const own = offsets.get(container) ?? new Map<string | number, number>();
      offsets.set(container, own.set(key, offset));
    },
    offsetOf: (container: object, key: string | number) => offsets.get(container)?.get(key),
  };
};

class NotPlain extends Error {}

const giveUp = (): never => {
  throw new NotPlain();
};

const parseIfPlain = <T>(read: () => T): T | undefined => {
  try {
    return read();
  } catch (error) {
    // A RangeError means that a line is too long for a regular expression.
    if (error instanceof NotPlain || error instanceof RangeError) return undefined;
    throw error;
  }
};

interface Cursor {
  readonly text: string;
  readonly readWord: WordReader;
  readonly note: OffsetRecorder | undefined;
  at: number;
  /** The indentation of the YAML line that is read next; -1 at the end of the document. */
  indent: number;
  line: number;
  depth: number;
}

/** The most levels of nesting that this parser reads: more than usual, but too few to overflow the stack. */
const deepest = 100;

const space = 32;
const newline = 10;
const hash = 35;
const dash = 45;

const marker = /---(?=[ \n])/y;
const keys = /([A-Za-z_][\w./-]{0,250}|"[\w ./:@-]{1,250}"):(?=[ \n])/y;
/** Matches a plain scalar up to the end of the line or a comment; its characters can't begin or end other syntax. */
const plain = /(?:[\w./~+$^(<=\\\u00A1-\u1FFF\u3001-\uD7FF]|-(?=[^\s]))(?:[^\s:#]+|:(?=[^\s])|#| +(?=[^\s#]))*/y;
const quoted = /"(?:[^"\\\n\t]|\\["\\/bfnrt])*"/y;
const singlyQuoted = /'(?:[^'\n\t]|'')*'/y;
const flow =
  /\[ *(?:(?:"[^"\\\n\t]*"|[A-Za-z/][\w./]*|\d{1,9})(?: *, *(?:"[^"\\\n\t]*"|[A-Za-z/][\w./]*|\d{1,9}))*)? *\]|\{ *\}/y;
const items = /"[^"]*"|[^\s,[\]]+/g;
const rest = / *(?: #[^\n]*)?\n/y;
/** Matches plain YAML words that may be no strings: those that begin like a number, and short ones (`true`). */
const mayBeMore = /^(?:[-+.~\d]|.{1,5}$)/;

/** Reports whether a key such as `on` means a boolean in YAML 1.1. */
const isBooleanKey = (key: string) => key.length <= 6 && /^(?:y|n|yes|no|on|off|true|false):$/i.test(key);

const match = (pattern: RegExp, { text }: Cursor, place: number): string | undefined => {
  pattern.lastIndex = place;
  const [found] = pattern.exec(text) ?? [];
  return found;
};

/**
 * Reads one YAML document, from its marker or first line to the next marker or the end. Gives up at all that a full
 * parser might read differently, and at invalid YAML.
 */
const readDocument = (text: string, from: number, firstLine: number, readWord: WordReader, note?: OffsetRecorder) => {
  const cursor: Cursor = { text, readWord, note, at: from, indent: 0, line: firstLine, depth: 0 };
  const isMarked = match(marker, cursor, from) !== undefined;
  if (isMarked) {
    const left = match(rest, cursor, from + 3) ?? giveUp();
    cursor.line++;
    advance(cursor, from + 3 + left.length);
  } else advance(cursor, from);
  const { at: contentAt, line: contentLine } = cursor;
  if (cursor.indent > 0) giveUp();
  const value = cursor.indent < 0 ? null : readBlock(cursor);
  if (cursor.indent >= 0) giveUp();
  return { isMarked, value, contentAt, contentLine, cursor };
};

/**
 * Moves the cursor to the first YAML line at or after `begin`, the start of a line, that has more than blanks and a
 * comment.
 */
const advance = (cursor: Cursor, begin: number): void => {
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
      if (code === 9) giveUp();
      const isMarker = place === start && code === dash && match(marker, cursor, place) !== undefined;
      cursor.at = place;
      cursor.indent = isMarker ? -1 : place - start;
      return;
    }
    start = code === newline ? place + 1 : text.indexOf("\n", place) + 1;
  }
};

/** Moves the cursor past a YAML value. Only a comment may follow on its line; the next line must not continue it. */
const finish = (cursor: Cursor, place: number, above: number): void => {
  const left = match(rest, cursor, place) ?? giveUp();
  cursor.line++;
  advance(cursor, place + left.length);
  if (cursor.indent > above) giveUp();
};

const isItemAt = (text: string, at: number) => text.charCodeAt(at) === dash && /[ \n]/.test(text.charAt(at + 1));

const readScalar = ({ readWord }: Cursor, word: string): unknown => {
  if (/^(?:0|[1-9]\d{0,14})$/.test(word)) return Number(word);
  return mayBeMore.test(word) ? readWord(word) : word;
};

/**
 * Reads a YAML value that begins on its key's or dash's line. `above` is the indentation of the map or list around
 * it.
 */
const readInline = (cursor: Cursor, place: number, above: number): unknown => {
  const first = cursor.text.charAt(place);
  if (first === "|") return readLiteral(cursor, place, above);
  const pattern = first === '"' ? quoted : first === "'" ? singlyQuoted : /[[{]/.test(first) ? flow : plain;
  const found = match(pattern, cursor, place) ?? giveUp();
  finish(cursor, place + found.length, above);
  if (first === '"') return found.includes("\\") ? JSON.parse(found) : found.slice(1, -1);
  if (first === "'") return found.slice(1, -1).replaceAll("''", "'");
  if (first === "{") return {};
  if (first !== "[") return readScalar(cursor, found);
  const made: unknown[] = [];
  for (const { 0: item, index } of found.matchAll(items)) {
    cursor.note?.(made, made.length, place + index);
    made.push(item.startsWith('"') ? item.slice(1, -1) : readScalar(cursor, item));
  }
  return made;
};

const readLiteral = (cursor: Cursor, place: number, above: number): string => {
  const { text } = cursor;
  const [head = giveUp(), chomping] = /^\|([-+]?)\n/.exec(text.slice(place, place + 3)) ?? [];
  let start = place + head.length;
  cursor.line++;
  let deep = 0;
  const lines: string[] = [];
  for (;;) {
    let inner = start;
    while (text.charCodeAt(inner) === space) inner++;
    if (inner >= text.length) giveUp();
    const isBlank = text.charCodeAt(inner) === newline;
    if (isBlank && inner - start > deep) giveUp();
    if (!isBlank) {
      if (text.charCodeAt(inner) === 9) giveUp();
      if (deep === 0) deep = inner - start;
      if (deep <= above || deep === 0) giveUp();
      if (inner - start < deep) break;
    }
    const end = text.indexOf("\n", start);
    lines.push(isBlank ? "" : text.slice(start + deep, end));
    start = end + 1;
    cursor.line++;
    if (start === text.length) break;
  }
  advance(cursor, start);
  if (cursor.indent > above || deep === 0) giveUp();
  if (chomping !== "+") while (lines.at(-1) === "") lines.pop();
  return `${lines.join("\n")}${chomping === "-" ? "" : "\n"}`;
};

/** Reads a YAML value, which is on the line of its key or dash or on the lines below. */
const readValue = (cursor: Cursor, place: number, above: number, isInMap: boolean): unknown => {
  const { text } = cursor;
  let begin = place;
  while (text.charCodeAt(begin) === space) begin++;
  const code = text.charCodeAt(begin);
  if (code !== newline && !(code === hash && begin > place)) return readInline(cursor, begin, above);
  cursor.line++;
  advance(cursor, text.indexOf("\n", begin) + 1);
  if (cursor.indent > above) return readBlock(cursor);
  return isInMap && cursor.indent === above && isItemAt(text, cursor.at) ? readList(cursor) : null;
};

const readMap = (cursor: Cursor): Record<string, unknown> => {
  const deep = cursor.indent;
  const made: Record<string, unknown> = {};
  while (cursor.indent === deep && !isItemAt(cursor.text, cursor.at)) {
    const found = match(keys, cursor, cursor.at) ?? giveUp();
    const key = found.startsWith('"') ? found.slice(1, -2) : found.slice(0, -1);
    if (Object.hasOwn(made, key) || key === "__proto__" || isBooleanKey(found)) giveUp();
    cursor.note?.(made, key, cursor.at);
    made[key] = readValue(cursor, cursor.at + found.length, deep, true);
  }
  if (cursor.indent > deep) giveUp();
  return made;
};

const readList = (cursor: Cursor): unknown[] => {
  const { text, note } = cursor;
  const deep = cursor.indent;
  const made: unknown[] = [];
  while (cursor.indent === deep && isItemAt(text, cursor.at)) {
    let place = cursor.at + 1;
    while (text.charCodeAt(place) === space) place++;
    // This parser can't find the offset of an empty list item; the full parser can.
    if (note && /[\n#]/.test(text.charAt(place))) giveUp();
    note?.(made, made.length, place);
    if (match(keys, cursor, place) !== undefined || isItemAt(text, place)) {
      cursor.indent += place - cursor.at;
      cursor.at = place;
      made.push(readBlock(cursor));
    } else made.push(readValue(cursor, cursor.at + 1, deep, false));
  }
  if (cursor.indent > deep) giveUp();
  return made;
};

const readBlock = (cursor: Cursor): unknown => {
  if (++cursor.depth > deepest) giveUp();
  const value = isItemAt(cursor.text, cursor.at) ? readList(cursor) : readMap(cursor);
  cursor.depth--;
  return value;
};
