import { type Document, isMap, isNode, isSeq, LineCounter, parseDocument } from "yaml";
import { Complaint, toSentence } from "./complaint.ts";

/** A mistake at a path of a document; `path` is empty if it is one of the whole document. */
interface DocumentMistake {
  path: readonly (string | number)[];
  sentence: string;
}

/** The text of a YAML file with one document, as a plain value. */
export interface YamlDocument {
  value: unknown;
  name: string;
  /** Returns the line of a path, or of its nearest parent that exists. */
  findLine(path: DocumentMistake["path"]): number;
  /** Throws one Complaint with all mistakes and their lines; does nothing if there are none. */
  complain(mistakes: readonly DocumentMistake[]): void;
}

/**
 * Parses a text with one YAML document. Throws a Complaint if it is no YAML, or if its aliases expand to too much:
 * `maxAliasCount` is that of the yaml library, -1 for no limit.
 */
export const parseYamlDocument = (text: string, name: string, maxAliasCount = 100): YamlDocument => {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false });
  const [fault] = document.errors;
  if (fault) {
    // The place of a repeated key begins before the white space in front of it.
    const [repeated = "", key = ""] = /^\s*([^:\s]*)/.exec(text.slice(fault.pos[0])) ?? [];
    const isRepeated = fault.code === "DUPLICATE_KEY";
    const offset = fault.pos[0] + (isRepeated ? repeated.length - key.length : 0);
    const why = isRepeated ? `the key ${key} is there twice` : fault.message;
    throw new Complaint(`${name}:${lines.linePos(offset).line} is no YAML: ${why}`);
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
    throw new Complaint(`${name} is no YAML: ${toSentence(error)}`);
  }
};

/** Returns the offset of a path in the text of a document, or of the path's nearest parent that exists. */
const findOffset = (path: DocumentMistake["path"], { contents }: Document): number => {
  let node: unknown = contents;
  let offset = 0;
  const startOf = (place: unknown) => (isNode(place) ? (place.range?.[0] ?? offset) : offset);
  for (const key of path) {
    if (isSeq(node)) {
      node = node.items[Number(key)];
      offset = startOf(node);
      continue;
    }
    const pair = isMap(node) ? node.items.find((item) => String(item.key) === String(key)) : undefined;
    if (pair === undefined) break;
    offset = startOf(pair.key);
    node = pair.value;
  }
  return offset;
};
