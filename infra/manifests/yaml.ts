import {
  Alias,
  Composer,
  type Document,
  isScalar,
  Lexer,
  LineCounter,
  type Node,
  Parser,
  type ScalarTag,
  visit,
  type YAMLMap,
  YAMLParseError,
} from "yaml";
import { toExactInteger } from "#lib/exact-json.ts";
import { toMap } from "#lib/json.ts";
import { type JsonStreamResult, parseJsonWithOffsets, readJsonStream } from "./json-stream.ts";
import { locatePlainYaml, readPlainYaml, type YamlDocumentWithOffsets } from "./plain-yaml.ts";

/** A position in a text; line and column are counted from 1. */
export interface SourcePosition {
  line: number;
  column: number;
}

/** A document as the package `yaml` has parsed it. */
export interface ParsedYamlDocument {
  document: Document.Parsed;
  /** The offset of its end. */
  to: number;
  getPosition(offset: number): SourcePosition;
}

/** The option `customTags` of the package `yaml` as a function of its tags. The package doesn't export this type. */
type Tags = Extract<
  NonNullable<ConstructorParameters<typeof Composer>[0]>["customTags"],
  (...args: never[]) => unknown
>;

/**
 * Makes the package `yaml` read scalars as kubectl does: YAML 1.1, in which 0644 is octal and `yes` is true, but
 * without timestamps and sexagesimal numbers such as 1:30. Also, 0o644 is octal, and a number must have a digit, so
 * `e1` and `.` are strings.
 */
const selectTags: Tags = (all) => {
  const selected = all.flatMap((tag): ReturnType<Tags> => {
    if (typeof tag === "string") return tag === "timestamp" ? [] : [tag];
    const isSexagesimal = "format" in tag && tag.format === "TIME";
    if (tag.tag === "tag:yaml.org,2002:timestamp" || isSexagesimal) return [];
    // kubectl reads sets (!!set) as maps, and ordered maps (!!omap) as lists.
    if ("collection" in tag && tag.collection && !tag.default) return [{ tag: tag.tag, collection: tag.collection }];
    if (tag.tag === "tag:yaml.org,2002:int") return [readExactly(tag as ScalarTag)];
    if ("format" in tag && tag.format === "EXP") return [{ ...tag, test: exponent } as ScalarTag];
    // The tag for numbers with a decimal point has no `format`, but its pattern is the only one that matches "1.".
    const isFraction = "test" in tag && tag.test?.test("1.");
    return isFraction ? [{ ...tag, test: fraction } as ScalarTag] : [tag];
  });
  return [...selected, "intOct"];
};

/** Returns a tag for integers of 64 bits. An integer that a JavaScript number can't represent exactly is a bigint. */
const readExactly = (tag: ScalarTag): ScalarTag => {
  const resolve: ScalarTag["resolve"] = (text, onError, options) => {
    const integer = tag.resolve(text, onError, { ...options, intAsBigInt: true });
    return typeof integer === "bigint" ? toExactInteger(integer) : integer;
  };
  return { ...tag, resolve };
};

/**
 * Matches a number with a decimal point, such as 1.5 or .5. If no digit stands before the point, kubectl accepts `_`
 * next to it only in a number with a sign: `+._5` is a number, and `._5` is a string.
 */
const fraction = /^(?:\.[0-9][0-9_]*|[-+]\._*[0-9][0-9_]*|[-+]?[0-9][0-9_]*\.[0-9_]*)$/;
/** Matches a number with an exponent, such as 1e3. */
const exponent = /^[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)[eE][-+]?[0-9]+$/;

/** The options of the package yaml, so that it reads manifests as kubectl does. */
const options = {
  version: "1.1",
  customTags: selectTags,
  prettyErrors: false,
  stringKeys: true,
  // The package would compare each key with all other keys of its map. `completeDocument` finds repeated keys faster.
  uniqueKeys: false,
  logLevel: "silent",
} as const;

/** The members of the package's lexer that read quoted texts, and lists and maps in brackets. */
interface LexerMembers extends Pick<Lexer, "lex"> {
  /** The least indentation of the next line. */
  indentNext: number;
  parseQuotedScalar(): Generator<string, string>;
  parseFlowCollection(): Generator<string, string>;
}

/**
 * A lexer that accepts any indentation of lines within quotes and brackets, as kubectl does. In the YAML standard,
 * these lines must be indented more than the key.
 */
class KubectlLexer extends (Lexer as unknown as new () => LexerMembers) {
  override *parseQuotedScalar(): Generator<string, string> {
    return yield* this.#ignoreIndentation(super.parseQuotedScalar());
  }

  override *parseFlowCollection(): Generator<string, string> {
    return yield* this.#ignoreIndentation(super.parseFlowCollection());
  }

  *#ignoreIndentation(lexing: Generator<string, string>): Generator<string, string> {
    const { indentNext } = this;
    this.indentNext = 0;
    const next = yield* lexing;
    this.indentNext = indentNext;
    return next;
  }
}

/** Returns the tokens of a text, from the lexer that works as kubectl does. */
const parseTokens = function* (text: string, parser: Parser) {
  for (const lexeme of new KubectlLexer().lex(text)) yield* parser.next(lexeme);
  yield* parser.end();
};

/** Parses all documents of a text, which is YAML or a sequence of JSON values. */
export const parseYamlDocuments = function* (text: string): Generator<ParsedYamlDocument> {
  const { pieces = [], invalidJsonLine } = readJsonStream(text) ?? {};
  // A single JSON value, valid or not, is parsed as YAML. If any of several values is invalid, `invalidJsonLine` is the
  // line of the first invalid value, and `pieces` ends before that. Callers get this line from `parseJsonOrPlainYaml`.
  const hasSeveralValues = pieces.length > 1 || invalidJsonLine !== undefined;
  if (hasSeveralValues) for (const piece of pieces) yield* parseYamlPiece(text, piece);
  else yield* parseYamlPiece(text, { from: 0, to: text.length, firstLine: 1 });
};

/** Parses the documents in a part of a text. Positions are those in the whole text. */
export const parseYamlPiece = function* (
  text: string,
  { from, to, firstLine }: Pick<YamlDocumentWithOffsets, "from" | "to" | "firstLine">,
): Generator<ParsedYamlDocument> {
  const lines = new LineCounter();
  const getPosition = (offset: number) => {
    const { line, col } = lines.linePos(offset);
    // The part may begin within a line. Columns are counted from the beginning of that line.
    const before = line === 1 && from > 0 ? from - 1 - text.lastIndexOf("\n", from - 1) : 0;
    return { line: line + firstLine - 1, column: col + before };
  };
  const part = text.slice(from, to);
  // In YAML 1.1, a key such as `on` is a boolean. kubectl makes it a text again: `true`.
  const mayHaveNonTextKeys = booleanOrNumberKey.test(part);
  lines.addNewLine(0);
  for (const document of new Composer(options).compose(parseTokens(part, new Parser(lines.addNewLine)))) {
    completeDocument(document, mayHaveNonTextKeys);
    yield { document, to: from + document.range[2], getPosition };
  }
};

/**
 * Completes a document: adds errors for repeated keys, and gives each alias its node, because the package would search
 * all anchors for each alias. With `mayHaveNonTextKeys`, renames keys such as `on` as kubectl does.
 */
const completeDocument = (document: Document.Parsed, mayHaveNonTextKeys: boolean): void => {
  const anchors = new Map<string, Node>();
  const noteAnchor = (node: Node & { anchor?: string }) => void (node.anchor && anchors.set(node.anchor, node));
  visit(document, {
    Map: (_, map) => {
      noteAnchor(map);
      document.errors.push(...findRepeatedKeys(map));
    },
    Seq: (_, list) => noteAnchor(list),
    Scalar: (_, scalar) => noteAnchor(scalar),
    Pair: (_, { key }) => void (mayHaveNonTextKeys && isScalar(key) && renameKey(key)),
    Alias: (_, alias) => {
      const node = anchors.get(alias.source);
      alias.resolve = (document, context) => {
        // The package gives a context when it converts the document to values. Then its own `resolve` must count the
        // aliases. It searches for the node in the context's cache, so this cache gets only the node.
        if (context === undefined) return node as ReturnType<Alias["resolve"]>;
        Object.assign(context, { aliasResolveCache: node === undefined ? [] : [node] });
        return Alias.prototype.resolve.call(alias, document, context);
      };
    },
  });
  document.errors.sort((left, right) => left.pos[0] - right.pos[0]);
};

/** Returns an error for each key that a map has twice. */
const findRepeatedKeys = ({ items }: YAMLMap): YAMLParseError[] => {
  const seen = new Set<unknown>();
  return items.flatMap(({ key }) => {
    if (!isScalar(key)) return [];
    const isRepeated = seen.has(key.value);
    seen.add(key.value);
    const [from, to] = key.range ?? [0, 1];
    return isRepeated ? [new YAMLParseError([from, to], "DUPLICATE_KEY", `the key ${key.value} is there twice`)] : [];
  });
};

/** Matches a key with its colon that YAML may read as a boolean or a number, such as `on:` or `010:`. */
const booleanOrNumberKey = /(?:^|[\s{,])(?:y|n|yes|no|on|off|true|false|[-+.]?\d[\w.+-]*)[ \t]*:(?:\s|$)/im;

/** Renames a key as kubectl does: `on` becomes `true`, and `010` becomes `8`. */
const renameKey = (key: { type?: unknown; value: unknown }): void => {
  if (key.type !== "PLAIN" || typeof key.value !== "string" || !booleanOrNumberKey.test(`${key.value}:`)) return;
  const value = readWord(key.value);
  if (typeof value === "boolean" || typeof value === "bigint" || Number.isFinite(value)) key.value = String(value);
};

/** The results of `parseJsonOrPlainYaml`. */
const parsedSources = new WeakMap<object, JsonStreamResult>();

/** Reads JSON or plain YAML, and remembers the result for the source; undefined for a text that needs a full parser. */
export const parseJsonOrPlainYaml = (source: { readonly text: string }): JsonStreamResult | undefined => {
  const known = parsedSources.get(source);
  if (known !== undefined) return known;
  const parsed = readJsonStream(source.text) ?? readPlainYaml(source.text, readWord);
  if (parsed !== undefined) parsedSources.set(source, parsed);
  return parsed;
};

/** Returns the position of a path. If the path doesn't exist, returns the position of its nearest ancestor. */
export type PositionFinder = (path: readonly (string | number)[]) => SourcePosition;

/** Returns a function that finds positions in a document of JSON or plain YAML; undefined for other documents. */
export const createPositionFinder = (text: string, piece: YamlDocumentWithOffsets): PositionFinder | undefined => {
  const places = parseJsonWithOffsets(text, piece) ?? locatePlainYaml(text, piece, readWord);
  if (places === undefined) return undefined;
  // The document may begin within a line. Columns are counted from the beginning of that line.
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
    // Callers mostly ask for ascending positions, so counting continues at the line of the last position.
    if (offset < start) [line, start] = [piece.firstLine, first];
    for (let next = text.indexOf("\n", start); next >= 0 && next < offset; next = text.indexOf("\n", start)) {
      line++;
      start = next + 1;
    }
    return { line, column: offset - start + 1 };
  };
};

/** The values of scalars without quotes that were read before. */
const words = new Map<string, unknown>();
const mostWords = 10_000;

/** Returns the value of a scalar without quotes, as the full parser reads it. */
const readWord = (word: string): unknown => {
  if (words.has(word)) return words.get(word);
  const text = `a: ${word}\n`;
  const [{ document } = {}] = parseYamlPiece(text, { from: 0, to: text.length, firstLine: 1 });
  const value = toMap(document?.toJS()).a;
  if (words.size >= mostWords) words.clear();
  words.set(word, value);
  return value;
};
