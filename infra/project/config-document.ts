import { type Document, isMap, isNode, isSeq, LineCounter, parseDocument } from "yaml";
import type { SettingsMistake } from "#lib/settings.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";

/** The text of a postern.yaml, or of another YAML file, as a plain value. */
export interface ConfigDocument {
  value: unknown;
  /** Throws one Complaint with all mistakes and their lines; does nothing if there are none. */
  complain(mistakes: readonly SettingsMistake[]): void;
}

/** Parses the text of a postern.yaml. Throws a Complaint if it is no YAML or empty. */
export const parseConfigDocument = (text: string, name: string): ConfigDocument => {
  const document = parseYamlDocument(text, name);
  // An interrupted save leaves an empty postern.yaml, which must not turn all rules off.
  if (document.value === null)
    throw new Complaint(`${name} is empty; it must name the rules that are on, or say "rules: {}" if none is`);
  return document;
};

/** Parses a text with one YAML document. Throws a Complaint if it is no YAML. */
export const parseYamlDocument = (text: string, name: string): ConfigDocument => {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false });
  const [fault] = document.errors;
  if (fault) throw new Complaint(`${name}:${lines.linePos(fault.pos[0]).line} is no YAML: ${fault.message}`);
  const value = toPlainValue(document, name);
  const complain = (mistakes: readonly SettingsMistake[]) => {
    if (mistakes.length === 0) return;
    throw new Complaint(
      mistakes
        .map((mistake) => ({ ...mistake, offset: findOffset(mistake.path, document) }))
        .sort((left, right) => left.offset - right.offset)
        .map(({ path, sentence, offset }) => {
          const place = `${name}:${lines.linePos(offset).line}`;
          return [place, ...(path.length > 0 ? [path.join(".")] : []), sentence].join(" ");
        })
        .join("\n"),
    );
  };
  return { value, complain };
};

/**
 * Returns the character offset of a path in the YAML of postern.yaml, or of the path's nearest parent that exists.
 */
const findOffset = (path: SettingsMistake["path"], { contents }: Document): number => {
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

/** Returns a YAML document as a plain value; throws a Complaint if an alias is undefined or expands to too much. */
const toPlainValue = (document: Document, name: string): unknown => {
  try {
    return document.toJS();
  } catch (error) {
    throw new Complaint(`${name} is no YAML: ${toSentence(error)}`);
  }
};
