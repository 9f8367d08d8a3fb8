import { openReader, Unusual, type WordOf } from "./plain-reader.ts";

/** What a document of a text holds, and where it is: which offsets it stands between, and on which line it and its content begin. */
export interface Piece {
  value: unknown;
  from: number;
  to: number;
  firstLine: number;
  line: number;
}

/**
 * The documents of a text in the YAML that nearly every manifest is written in: maps and lists in block style, with values
 * on their key's line or in literal blocks, without anchors and tags. It is read here several times faster than by a whole
 * parser, with the same outcome; undefined for all other texts, right or wrong. `wordOf` says what a word is that may be
 * more than a text.
 */
export const plainIn = (text: string, wordOf: WordOf): Piece[] | undefined => {
  if (/[\r\uFEFF]|^[%.]/m.test(text) || !text.endsWith("\n")) return undefined;
  return ifUsual(() => {
    const pieces: Piece[] = [];
    for (let from = 0, line = 1; ; ) {
      const reader = openReader(text, from, line, wordOf);
      const isFirst = pieces.length === 0 && !reader.isMarked;
      const piece = { value: reader.read(), from, to: reader.end(), firstLine: line, line: reader.contentLine() };
      // Before the first marker there may be nothing but comments.
      if (!isFirst || piece.value !== null) pieces.push(piece);
      if (piece.to === text.length) return pieces;
      [from, line] = [piece.to, reader.endLine()];
    }
  });
};

/** What a document holds, with where the members of its maps and lists are written: keys of maps, and items themselves. */
export interface Written {
  value: unknown;
  begin: number;
  offsetOf(container: object, key: string | number): number | undefined;
}

/** Those of a plain document, which is read once more. */
export const writtenIn = (text: string, { from, firstLine }: Piece, wordOf: WordOf): Written | undefined =>
  ifUsual(() => {
    const { note, offsetOf } = openOffsets();
    const reader = openReader(text, from, firstLine, wordOf, note);
    return { value: reader.read(), begin: reader.begin(), offsetOf };
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

const ifUsual = <T>(read: () => T): T | undefined => {
  try {
    return read();
  } catch (error) {
    // A line may be too long for our expressions.
    if (error instanceof Unusual || error instanceof RangeError) return undefined;
    throw error;
  }
};
