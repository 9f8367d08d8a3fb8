import {
  type Alias,
  type Document,
  isMap,
  isNode,
  isSeq,
  LineCounter,
  parseAllDocuments,
  parseDocument,
  visit,
} from "yaml";
import { Complaint, toSentence } from "./complaint.ts";

/** A mistake at a path of a document. An empty path means the whole document. */
interface DocumentMistake {
  path: readonly (string | number)[];
  sentence: string;
}

/** A parsed YAML file with one document. `name` is the file's name in messages. */
export interface YamlDocument {
  value: unknown;
  name: string;
  /** Returns the line of the value at a path. If there is no value, returns the line of the nearest parent. */
  findLine(path: DocumentMistake["path"]): number;
  /** Throws one Complaint that lists all mistakes with their lines. Without mistakes, does nothing. */
  complain(mistakes: readonly DocumentMistake[]): void;
}

/** Options with the meaning that the yaml library gives them. */
interface YamlOptions {
  maxAliasCount?: number;
  merge?: boolean;
}

/** The options with which a document may have any number of aliases. */
export const unlimitedAliases = { maxAliasCount: -1 };

/**
 * Parses a text with one YAML document. Throws a Complaint if the text is no YAML, or if its aliases expand to too many
 * values.
 */
export const parseYamlDocument = (
  text: string,
  name: string,
  { maxAliasCount = 100, merge = false }: YamlOptions = {},
): YamlDocument => {
  const lines = new LineCounter();
  requireText(text, name);
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false, merge });
  return toYamlDocument(document, lines, { text, name, maxAliasCount });
};

/** Parses a text with any number of YAML documents, as `parseYamlDocument` does. Leaves out empty documents. */
export const parseYamlDocuments = (text: string, name: string): YamlDocument[] => {
  const lines = new LineCounter();
  requireText(text, name);
  return parseAllDocuments(text, { lineCounter: lines, prettyErrors: false })
    .map((document) => toYamlDocument(document, lines, { text, name, maxAliasCount: 100 }))
    .filter(({ value }) => value !== null);
};

const toYamlDocument = (
  document: Document,
  lines: LineCounter,
  { text, name, maxAliasCount }: { text: string; name: string; maxAliasCount: number },
): YamlDocument => {
  const [fault] = document.errors;
  if (fault) {
    // For a repeated key, `pos` is the offset of the white space before the key. The line must be that of the key.
    const [keyAndSpace = "", key = ""] = /^\s*([^:\s]*)/.exec(text.slice(fault.pos[0])) ?? [];
    const isRepeated = fault.code === "DUPLICATE_KEY";
    const offset = fault.pos[0] + (isRepeated ? keyAndSpace.length - key.length : 0);
    const reason = isRepeated ? `the key ${key} is there twice` : explainYamlError(fault);
    throw new Complaint(`${name}:${lines.linePos(offset).line} is no YAML: ${reason}`);
  }
  const findLine: YamlDocument["findLine"] = (path) => lines.linePos(findOffset(path, document)).line;
  const complain: YamlDocument["complain"] = (mistakes) => {
    if (mistakes.length === 0) return;
    const located = mistakes.map((mistake) => ({ ...mistake, line: findLine(mistake.path) }));
    throw new Complaint(
      located
        .sort((left, right) => left.line - right.line)
        .map(({ path, sentence, line }) =>
          [`${name}:${line}`, ...(path.length > 0 ? [path.join(".")] : []), sentence].join(" "),
        )
        .join("\n"),
    );
  };
  try {
    return { value: document.toJS({ maxAliasCount }), name, findLine, complain };
  } catch (error) {
    const offset = findUnresolvedAlias(document)?.range?.[0] ?? findOffset([], document);
    throw new Complaint(`${name}:${lines.linePos(offset).line} is no YAML: ${explainYamlError(error)}`);
  }
};

/** Returns the first alias without an anchor before it. */
const findUnresolvedAlias = (document: Document): Alias | undefined => {
  let found: Alias | undefined;
  visit(document, {
    Alias: (_, alias) => {
      if (alias.resolve(document) !== undefined) return undefined;
      found = alias;
      return visit.BREAK;
    },
  });
  return found;
};

/** Throws a Complaint if a text was read from a file that isn't in UTF-8, or if it has a NUL character. */
const requireText = (text: string, name: string): void => {
  // A decoder replaces both bytes of the byte order mark of UTF-16 by U+FFFD.
  if (text.startsWith("\uFFFD\uFFFD")) throw new Complaint(`${name}:1 ${utf16Sentence}`);
  const offset = text.search(/[\0\uFFFD]/);
  if (offset < 0) return;
  const line = text.slice(0, offset).split("\n").length;
  const sentence =
    text[offset] === "\0"
      ? nulSentence
      : "has the character U+FFFD, in place of one that is not in UTF-8; save the file as UTF-8";
  throw new Complaint(`${name}:${line} ${sentence}`);
};

export const utf16Sentence = "is in UTF-16; it must be saved as UTF-8";
export const nulSentence = "has a NUL character, which neither YAML nor JSON allows";

/**
 * Returns a sentence about an error of the YAML parser. A message in the parser's own terms is replaced by one that
 * says what is wrong in the YAML. A part of the YAML at the end of a message is removed: it may be a password in a
 * Secret.
 */
export const explainYamlError = (error: unknown): string => {
  const sentence = toSentence(error);
  return plainSentences.find(([pattern]) => pattern.test(sentence))?.[1] ?? sentence.replace(/(?<=\w): .*$/s, "");
};

/** The sentences that replace messages of the YAML parser. */
const plainSentences: [RegExp, string][] = [
  // A stack overflow means that the text is nested too deeply, not that it is too large.
  [/^Maximum call stack size exceeded$/, "it is nested too deeply"],
  [/^Source contains multiple documents/, "it has several documents; leave only one in it, and no --- after it"],
  [/^Tabs are not allowed as indentation/, "it is indented with a tab; use spaces"],
  [/^Excessive alias count/, "its aliases stand for too many values; write some of them out"],
  [/^Converting circular structure to JSON/, "an alias stands within what it leads to"],
  [/^With stringKeys, all keys must be strings$/, "a key must be a text, neither a map nor a list"],
  [/^Unresolved alias /, "an alias stands before its anchor, or has none; a text that begins with * needs quotes"],
  [
    /^(Unresolved|Could not resolve) tag|^Verbatim tags|^Not a valid tag|^The .* tag has no suffix$/s,
    "a tag is unknown or invalid; a text that begins with ! needs quotes",
  ],
  [/^Block scalar header includes/, "a text that begins with | or > needs quotes"],
  [/^Invalid escape sequence /, "a text in double quotes has an invalid escape sequence"],
  [/^(Unsupported YAML version|Unknown directive) /, "a directive is unknown; a text that begins with % needs quotes"],
  [/^[^ ]* used for .* collection, but expects /, "a tag doesn't fit what it stands before"],
];

/** Returns the offset in the text of the value at a path. If there is no value, returns that of the nearest parent. */
const findOffset = (path: DocumentMistake["path"], { contents }: Document): number => {
  let node: unknown = contents;
  let offset = 0;
  const getStart = (yamlNode: unknown) => (isNode(yamlNode) ? (yamlNode.range?.[0] ?? offset) : offset);
  for (const key of path) {
    if (isSeq(node)) {
      node = node.items[Number(key)];
      offset = getStart(node);
      continue;
    }
    const pair = isMap(node) ? node.items.find((item) => String(item.key) === String(key)) : undefined;
    if (pair === undefined) break;
    offset = getStart(pair.key);
    node = pair.value;
  }
  return offset;
};
