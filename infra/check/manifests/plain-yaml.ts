/** A document of a text: its value, the offsets it stands between, and the lines on which it and its content begin. */
export interface Piece {
  value: unknown;
  from: number;
  to: number;
  firstLine: number;
  line: number;
}

/** Reads a word that may be more than a text. */
type WordOf = (word: string) => unknown;

/** Hears where the members of maps and lists are written. */
type Note = (container: object, key: string | number, offset: number) => void;

/**
 * Reads the documents of a text in the YAML that nearly every manifest is written in: maps and lists in block style, with
 * values on their key's line or in literal blocks, without anchors and tags. This is several times faster than a whole
 * parser, with the same outcome; undefined for all other texts, right or wrong.
 */
export const readPlain = (text: string, wordOf: WordOf): Piece[] | undefined => {
  if (/[\r\uFEFF]|^[%.]/m.test(text) || !text.endsWith("\n")) return undefined;
  return ifPlain(() => {
    const pieces: Piece[] = [];
    for (let from = 0, line = 1; ; ) {
      const { isMarked, value, contentLine, cursor } = readDocument(text, from, line, wordOf);
      const isFirst = pieces.length === 0 && !isMarked;
      const piece = { value, from, to: cursor.at, firstLine: line, line: contentLine };
      // Before the first marker there may be nothing but comments.
      if (!isFirst || piece.value !== null) pieces.push(piece);
      if (piece.to === text.length) return pieces;
      from = piece.to;
      line = cursor.line;
    }
  });
};

/** The value of a document, with the offsets of its members: keys of maps, and items themselves. */
export interface Written {
  value: unknown;
  begin: number;
  offsetOf(container: object, key: string | number): number | undefined;
}

/** Reads a plain document once more, with offsets. */
export const locatePlain = (text: string, { from, firstLine }: Piece, wordOf: WordOf): Written | undefined =>
  ifPlain(() => {
    const { note, offsetOf } = openOffsets();
    const { value, contentAt } = readDocument(text, from, firstLine, wordOf, note);
    return { value, begin: contentAt, offsetOf };
  });

/** Offsets by containers and keys, none yet. */
export const openOffsets = () => {
  const offsets = new Map<object, Map<string | number, number>>();
  return {
    note: (container: object, key: string | number, offset: number) => {
      const own = offsets.get(container) ?? new Map<string | number, number>();
      offsets.set(container, own.set(key, offset));
    },
    offsetOf: (container: object, key: string | number) => offsets.get(container)?.get(key),
  };
};

/** YAML that only a whole parser reads. */
class NotPlain extends Error {}

const giveUp = (): never => {
  throw new NotPlain();
};

const ifPlain = <T>(read: () => T): T | undefined => {
  try {
    return read();
  } catch (error) {
    // A line may be too long for our expressions.
    if (error instanceof NotPlain || error instanceof RangeError) return undefined;
    throw error;
  }
};

/** Where reading is: at the content of a line. */
interface Cursor {
  readonly text: string;
  readonly wordOf: WordOf;
  readonly note: Note | undefined;
  at: number;
  /** How deep the content stands; -1 at the end of the document. */
  indent: number;
  line: number;
  depth: number;
}

/** Deeper than anything usual, and less deep than what recursion ends on. */
const deepest = 100;

const space = 32;
const newline = 10;
const hash = 35;
const dash = 45;

const marker = /---(?=[ \n])/y;
const keys = /([A-Za-z_][\w./-]{0,250}|"[\w ./:@-]{1,250}"):(?=[ \n])/y;
/** Up to the end of the line, or a comment: without what begins or ends something else. */
const plain = /(?:[\w./~+$^(<=\\\u00A1-\u1FFF\u3001-\uD7FF]|-(?=[^\s]))(?:[^\s:#]+|:(?=[^\s])|#| +(?=[^\s#]))*/y;
const quoted = /"(?:[^"\\\n\t]|\\["\\/bfnrt])*"/y;
const singlyQuoted = /'(?:[^'\n\t]|'')*'/y;
const flow =
  /\[ *(?:(?:"[^"\\\n\t]*"|[A-Za-z/][\w./]*|\d{1,9})(?: *, *(?:"[^"\\\n\t]*"|[A-Za-z/][\w./]*|\d{1,9}))*)? *\]|\{ *\}/y;
const items = /"[^"]*"|[^\s,[\]]+/g;
const rest = / *(?: #[^\n]*)?\n/y;
/** What may be a number or the like, and is none by its first letters alone. */
const mayBeMore = /^(?:[-+.~\d]|.{1,5}$)/;

/** Reports whether a key that looks like a text means something else. */
const isMeant = (key: string) => key.length <= 6 && /^(?:y|n|yes|no|on|off|true|false):$/i.test(key);

const match = (pattern: RegExp, { text }: Cursor, place: number): string | undefined => {
  pattern.lastIndex = place;
  const [found] = pattern.exec(text) ?? [];
  return found;
};

/**
 * Reads one document, from its marker or its first line on to the next marker or the end. It gives up at what a whole
 * parser might read otherwise, and makes sense of nothing that is wrong.
 */
const readDocument = (text: string, from: number, firstLine: number, wordOf: WordOf, note?: Note) => {
  const cursor: Cursor = { text, wordOf, note, at: from, indent: 0, line: firstLine, depth: 0 };
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

/** Goes on to the next line, from the beginning of one, that has more than a comment. */
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

/** Goes on behind a value; what is left of its line must be a comment, and the next line no longer the value's. */
const finish = (cursor: Cursor, place: number, above: number): void => {
  const left = match(rest, cursor, place) ?? giveUp();
  cursor.line++;
  advance(cursor, place + left.length);
  if (cursor.indent > above) giveUp();
};

const isItemAt = (text: string, at: number) => text.charCodeAt(at) === dash && /[ \n]/.test(text.charAt(at + 1));

const readScalar = ({ wordOf }: Cursor, word: string): unknown => {
  if (/^(?:0|[1-9]\d{0,14})$/.test(word)) return Number(word);
  return mayBeMore.test(word) ? wordOf(word) : word;
};

/** Reads a value that begins at a place behind a key or a dash, in something that stands at a depth. */
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
  for (const { 0: one, index } of found.matchAll(items)) {
    cursor.note?.(made, made.length, place + index);
    made.push(one.startsWith('"') ? one.slice(1, -1) : readScalar(cursor, one));
  }
  return made;
};

/** Reads a literal block; blank lines at its end are kept or not as its head says. */
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

/** Reads a value that stands behind a key or a dash, or on the lines below it. */
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
    if (Object.hasOwn(made, key) || key === "__proto__" || isMeant(found)) giveUp();
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
    // An empty item has a place that only a parser knows.
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
