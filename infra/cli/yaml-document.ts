import { type Document, isMap, isNode, isSeq, LineCounter, parseAllDocuments, parseDocument } from "yaml";
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

/** The `maxAliasCount` with which a document may have any number of aliases. */
export const unlimitedAliases = -1;

/**
 * Parses a text with one YAML document. Throws a Complaint if the text is no YAML, or if its aliases expand to too many
 * values. `maxAliasCount` has the meaning that the yaml library gives it.
 */
export const parseYamlDocument = (text: string, name: string, maxAliasCount = 100): YamlDocument => {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false });
  return toYamlDocument(document, lines, { text, name, maxAliasCount });
};

/** Parses a text with any number of YAML documents, as `parseYamlDocument` does. Leaves out empty documents. */
export const parseYamlDocuments = (text: string, name: string): YamlDocument[] => {
  const lines = new LineCounter();
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
    const reason = isRepeated ? `the key ${key} is there twice` : explainParserMessage(fault.message);
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
    throw new Complaint(`${name} is no YAML: ${explainParserMessage(toSentence(error))}`);
  }
};

/** Replaces a message in terms of the parser's code by one about the YAML. */
const explainParserMessage = (message: string): string => {
  if (message.startsWith("Maximum call stack size")) return "it is nested too deeply";
  if (!message.startsWith("Source contains multiple documents")) return message;
  return "it has several documents; leave only one in it, and no --- after it";
};

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
