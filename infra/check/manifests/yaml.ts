import { Composer, type Document, isScalar, LineCounter, Parser, type ScalarTag, visit } from "yaml";
import { locateJson, readJson, type Stream } from "./json-stream.ts";
import { locatePlain, type Piece, readPlain } from "./plain-yaml.ts";

/** Where something stands, counted from 1. */
export interface Position {
  line: number;
  column: number;
}

/** A document as a parser sees it, with all that it is written in. */
export interface Composed {
  document: Document.Parsed;
  /** Where what follows it begins, in the text. */
  to: number;
  /** Of an offset of the document's own nodes, where it is in the text. */
  positionOf(offset: number): Position;
}

type Tags = Extract<
  NonNullable<ConstructorParameters<typeof Composer>[0]>["customTags"],
  (...args: never[]) => unknown
>;

/**
 * kubectl takes YAML 1.1, where 0644 is octal and `yes` is true, but knows no times in it, takes 0o644 as well, and wants
 * a digit before an exponent: `e1` is a text.
 */
const tags: Tags = (all) => {
  const own = all.flatMap((tag): ReturnType<Tags> => {
    if (typeof tag === "string") return tag === "timestamp" ? [] : [tag];
    if (tag.tag === "tag:yaml.org,2002:timestamp" || ("format" in tag && tag.format === "TIME")) return [];
    return "format" in tag && tag.format === "EXP" ? [{ ...tag, test: exponent } as ScalarTag] : [tag];
  });
  return [...own, "intOct"];
};

const exponent = /^[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)[eE][-+]?[0-9]+$/;

const options = {
  version: "1.1",
  customTags: tags,
  prettyErrors: false,
  stringKeys: true,
  logLevel: "silent",
} as const;

/** Parses every document of a text. */
export const parseDocuments = function* (text: string): Generator<Composed> {
  const { pieces = [], broken } = readJson(text) ?? {};
  if (pieces.length > 1 || broken !== undefined) for (const piece of pieces) yield* parsePiece(text, piece);
  else yield* parsePiece(text, { from: 0, to: text.length, firstLine: 1 });
};

/** Parses a part of a text that stands by itself. */
export const parsePiece = function* (
  text: string,
  { from, to, firstLine }: Pick<Piece, "from" | "to" | "firstLine">,
): Generator<Composed> {
  const lines = new LineCounter();
  const positionOf = (offset: number) => {
    const { line, col } = lines.linePos(offset);
    // What begins on a line that another one ends on, stands behind that.
    const before = line === 1 && from > 0 ? from - 1 - text.lastIndexOf("\n", from - 1) : 0;
    return { line: line + firstLine - 1, column: col + before };
  };
  const own = text.slice(from, to);
  const mayMean = meaning.test(own);
  for (const document of new Composer(options).compose(new Parser(lines.addNewLine).parse(own))) {
    if (mayMean) visit(document, { Pair: (_, { key }) => void (isScalar(key) && renameKey(key)) });
    yield { document, to: from + document.range[2], positionOf };
  }
};

/** Where a key may be something else than a text. */
const meaning = /(?:^|[\s{,])(?:y|n|yes|no|on|off|true|false|[-+.]?\d[\w.+-]*)[ \t]*:(?:\s|$)/im;

/** For kubectl, a key is the text of what it means: `on` is `true`, and `010` is `8`. */
const renameKey = (key: { type?: unknown; value: unknown }): void => {
  if (key.type !== "PLAIN" || typeof key.value !== "string" || !meaning.test(`${key.value}:`)) return;
  const value = readWord(key.value);
  if (typeof value === "boolean" || Number.isFinite(value)) key.value = String(value);
};

/** Reads a text of JSON or plain YAML; undefined for what takes a parser of YAML. */
export const readPieces = (text: string): Stream | undefined => {
  const stream = readJson(text);
  if (stream !== undefined) return stream;
  const pieces = readPlain(text, readWord);
  return pieces && { pieces };
};

/** Finds where a path leads, or the nearest above it that is there. */
export type Places = (path: readonly (string | number)[]) => Position;

/** Returns the places in a document that is JSON or plain; undefined where only a parser can tell. */
export const openPlaces = (text: string, piece: Piece): Places | undefined => {
  const places = locateJson(text, piece) ?? locatePlain(text, piece, readWord);
  if (places === undefined) return undefined;
  // It may begin on a line that another one ends on.
  const first = piece.from === 0 ? 0 : text.lastIndexOf("\n", piece.from - 1) + 1;
  let [line, start] = [piece.firstLine, first];
  return (path) => {
    let [offset, value] = [places.begin, places.value];
    for (const step of path) {
      if (typeof value !== "object" || value === null) break;
      const found = places.offsetOf(value, Array.isArray(value) ? Number(step) : String(step));
      if (found === undefined) break;
      [offset, value] = [found, Reflect.get(value, step)];
    }
    // Who asks goes down, more often than not.
    if (offset < start) [line, start] = [piece.firstLine, first];
    for (let next = text.indexOf("\n", start); next >= 0 && next < offset; next = text.indexOf("\n", start)) {
      line++;
      start = next + 1;
    }
    return { line, column: offset - start + 1 };
  };
};

/** Words come again and again. */
const words = new Map<string, unknown>();
const mostWords = 10_000;

/** Reads a word of YAML: a number, a text, true… */
const readWord = (word: string): unknown => {
  if (words.has(word)) return words.get(word);
  const [{ document } = {}] = parsePiece(`a: ${word}\n`, { from: 0, to: word.length + 4, firstLine: 1 });
  const { a: value }: { a?: unknown } = Object(document?.toJS());
  if (words.size >= mostWords) words.clear();
  words.set(word, value);
  return value;
};
