/** This is YAML that somebody else has to read. */
export class Unusual extends Error {}

/** What a word is that may be more than a text. */
export type WordOf = (word: string) => unknown;

/** Hears where the members of maps and lists are written. */
type Note = (container: object, key: string | number, offset: number) => void;

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

/** A key that is no text, for all that it looks like one. */
const isMeant = (key: string) => key.length <= 6 && /^(?:y|n|yes|no|on|off|true|false):$/i.test(key);

/**
 * Reads one document of a text in block style, from its marker or its first line on to the next marker or the end. What it
 * can't read as a whole parser would, it throws `Unusual` at; it makes sense of nothing that is wrong.
 */
export const openReader = (text: string, from: number, firstLine: number, wordOf: WordOf, note?: Note) => {
  /** Where the next line's content stands, how deep, and on which line; deep as -1 where there is none. */
  let [at, indent, line] = [from, 0, firstLine];
  let [contentAt, contentLine] = [0, 0];
  let depth = 0;

  const taken = (pattern: RegExp, place: number): string | undefined => {
    pattern.lastIndex = place;
    const [found] = pattern.exec(text) ?? [];
    return found;
  };
  const giveUp = (): never => {
    throw new Unusual();
  };

  /** Goes on to the next line, from the beginning of one, that has more than a comment. */
  const advance = (begin: number): void => {
    for (let start = begin; ; line++) {
      let place = start;
      while (text.charCodeAt(place) === space) place++;
      const code = text.charCodeAt(place);
      if (place >= text.length) {
        [at, indent] = [text.length, -1];
        return;
      }
      if (code !== newline && code !== hash) {
        if (code === 9) giveUp();
        const isMarker = place === start && code === dash && taken(marker, place) !== undefined;
        [at, indent] = [place, isMarker ? -1 : place - start];
        return;
      }
      start = code === newline ? place + 1 : text.indexOf("\n", place) + 1;
    }
  };

  /** What is left of a line is nothing, or a comment; on to the next one, which is no longer this value's. */
  const finish = (place: number, above: number): void => {
    const left = taken(rest, place) ?? giveUp();
    line++;
    advance(place + left.length);
    if (indent > above) giveUp();
  };

  const isItem = () => text.charCodeAt(at) === dash && /[ \n]/.test(text.charAt(at + 1));

  const scalarOf = (word: string): unknown => {
    if (/^(?:0|[1-9]\d{0,14})$/.test(word)) return Number(word);
    return mayBeMore.test(word) ? wordOf(word) : word;
  };

  /** A value that begins at a place behind a key or a dash, in something that stands at a depth. */
  const inline = (place: number, above: number): unknown => {
    const first = text.charAt(place);
    if (first === "|") return literal(place, above);
    if (first === '"') {
      const found = taken(quoted, place) ?? giveUp();
      finish(place + found.length, above);
      return found.includes("\\") ? JSON.parse(found) : found.slice(1, -1);
    }
    if (first === "'") {
      const found = taken(singlyQuoted, place) ?? giveUp();
      finish(place + found.length, above);
      return found.slice(1, -1).replaceAll("''", "'");
    }
    if (first === "[" || first === "{") {
      const found = taken(flow, place) ?? giveUp();
      finish(place + found.length, above);
      if (first === "{") return {};
      const made: unknown[] = [];
      for (const { 0: one, index } of found.matchAll(items)) {
        note?.(made, made.length, place + index);
        made.push(one.startsWith('"') ? one.slice(1, -1) : scalarOf(one));
      }
      return made;
    }
    const word = taken(plain, place) ?? giveUp();
    finish(place + word.length, above);
    return scalarOf(word);
  };

  /** A literal block; blank lines at its end are kept or not as its head says. */
  const literal = (place: number, above: number): string => {
    const [head = giveUp(), chomping] = /^\|([-+]?)\n/.exec(text.slice(place, place + 3)) ?? [];
    let start = place + head.length;
    line++;
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
      line++;
      if (start === text.length) break;
    }
    advance(start);
    if (indent > above) giveUp();
    if (deep === 0) giveUp();
    if (chomping !== "+") while (lines.at(-1) === "") lines.pop();
    return `${lines.join("\n")}${chomping === "-" ? "" : "\n"}`;
  };

  /** A value that stands behind a key or a dash, or on the lines below it. */
  const valueBehind = (place: number, above: number, isInMap: boolean): unknown => {
    let begin = place;
    while (text.charCodeAt(begin) === space) begin++;
    const code = text.charCodeAt(begin);
    if (code !== newline && !(code === hash && begin > place)) return inline(begin, above);
    line++;
    advance(text.indexOf("\n", begin) + 1);
    if (indent > above) return block();
    return isInMap && indent === above && isItem() ? list() : null;
  };

  const map = (): Record<string, unknown> => {
    const deep = indent;
    const made: Record<string, unknown> = {};
    while (indent === deep && !isItem()) {
      const found = taken(keys, at) ?? giveUp();
      const key = found.startsWith('"') ? found.slice(1, -2) : found.slice(0, -1);
      if (Object.hasOwn(made, key) || key === "__proto__" || isMeant(found)) giveUp();
      note?.(made, key, at);
      made[key] = valueBehind(at + found.length, deep, true);
    }
    if (indent > deep) giveUp();
    return made;
  };

  const list = (): unknown[] => {
    const deep = indent;
    const made: unknown[] = [];
    while (indent === deep && isItem()) {
      let place = at + 1;
      while (text.charCodeAt(place) === space) place++;
      // What isn't there has a place that only a parser knows.
      if (note && /[\n#]/.test(text.charAt(place))) giveUp();
      note?.(made, made.length, place);
      const isNested =
        taken(keys, place) !== undefined || (text.charCodeAt(place) === dash && /[ \n]/.test(text.charAt(place + 1)));
      if (isNested) {
        indent += place - at;
        at = place;
        made.push(block());
      } else made.push(valueBehind(at + 1, deep, false));
    }
    if (indent > deep) giveUp();
    return made;
  };

  const block = (): unknown => {
    if (++depth > deepest) giveUp();
    const value = isItem() ? list() : map();
    depth--;
    return value;
  };

  const head = taken(marker, from);
  const isMarked = head !== undefined;
  return {
    isMarked,
    read: (): unknown => {
      if (isMarked) {
        const left = taken(rest, from + 3) ?? giveUp();
        line++;
        advance(from + 3 + left.length);
      } else advance(from);
      [contentAt, contentLine] = [at, line];
      if (indent < 0) return null;
      if (indent > 0) giveUp();
      const value = block();
      if (indent >= 0) giveUp();
      return value;
    },
    begin: () => contentAt,
    contentLine: () => contentLine,
    end: () => at,
    endLine: () => line,
  };
};
