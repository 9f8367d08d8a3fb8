import { isCollection, isMap, isNode, isScalar, isSeq } from "yaml";
import { getOwn, toMap } from "#lib/json.ts";
import type { FieldPath, Manifest, ManifestSourceText } from "./manifests.ts";
import type { YamlDocumentWithOffsets } from "./plain-yaml.ts";
import {
  createPositionFinder,
  type ParsedYamlDocument,
  type PositionFinder,
  parseJsonOrPlainYaml,
  parseYamlDocuments,
  parseYamlPiece,
  type SourcePosition,
} from "./yaml.ts";

/** The file that was parsed last. Usually, all positions in a file are found before those in the next file. */
let last: ParsedSource | undefined;

/** A parsed file, with what was found in it so far. */
interface ParsedSource {
  source: ManifestSourceText;
  pieces: readonly YamlDocumentWithOffsets[];
  /** The functions that find positions in documents, by index; undefined if the document needs the full parser. */
  finders: Map<number, PositionFinder | undefined>;
  /** The documents that the full parser has parsed, by index. */
  documents: Map<number, ParsedYamlDocument>;
}

const parseSource = (source: ManifestSourceText): ParsedSource => {
  if (last?.source !== source)
    last = {
      source,
      pieces: parseJsonOrPlainYaml(source)?.pieces ?? [],
      finders: new Map(),
      documents: new Map(),
    };
  return last;
};

/** Returns the function that finds positions in a document of JSON or plain YAML; undefined for other documents. */
const getPositionFinder = (source: ManifestSourceText, index: number): PositionFinder | undefined => {
  const { pieces, finders } = parseSource(source);
  const piece = pieces[index];
  if (piece !== undefined && !finders.has(index)) finders.set(index, createPositionFinder(source.text, piece));
  return finders.get(index);
};

/** Returns a document of a file, parsed by the full parser. */
const findDocument = (source: ManifestSourceText, index: number): ParsedYamlDocument | undefined => {
  const { pieces, documents } = parseSource(source);
  if (documents.has(index)) return documents.get(index);
  const piece = pieces[index];
  // A piece is the text of one document. A file that can't be cut into pieces is parsed as a whole.
  if (piece !== undefined) for (const document of parseYamlPiece(source.text, piece)) documents.set(index, document);
  else for (const document of parseYamlDocuments(source.text)) documents.set(documents.size, document);
  return documents.get(index);
};

/** Returns the line and column of a field, or of its nearest ancestor if the file doesn't have the field. */
export const findPosition = (manifest: Manifest, wanted: FieldPath): SourcePosition => {
  const { source, document, path, line } = manifest;
  const field = findPathInFile(manifest, wanted);
  const findInPlainDocument = getPositionFinder(source, document);
  if (findInPlainDocument !== undefined) return findInPlainDocument([...path, ...field]);
  // The full parser reads any other document. Its nodes have the positions.
  const { document: parsed, getPosition: positionAt } = findDocument(source, document) ?? {};
  let position = { line, column: 1 };
  let node: unknown = parsed?.contents;
  if (parsed === undefined || positionAt === undefined) return position;
  const setPosition = (node: unknown) => {
    if (isNode(node) && node.range) position = positionAt(node.range[0]);
  };
  // The position of the object, in case none of the steps below is found.
  setPosition(path.length === 0 ? node : parsed.getIn(path, true));
  for (const step of [...path, ...field]) {
    if (isNode(node) && !isCollection(node)) break;
    const pair = isMap(node)
      ? node.items.findLast(({ key }) => (isScalar(key) ? String(key.value) : "") === String(step))
      : undefined;
    const inner = isSeq(node) ? node.items[Number(step)] : pair?.value;
    if (inner === undefined) break;
    setPosition(isSeq(node) ? inner : pair?.key);
    node = inner;
  }
  return position;
};

/**
 * Returns the path of a field in the file, for an object that kustomize or helm has made from the one in the file. List
 * items are found by name. If the file has another value, the path ends before it.
 */
const findPathInFile = ({ object, written }: Manifest, field: FieldPath): FieldPath => {
  if (written === undefined) return field;
  const found: (string | number)[] = [];
  let [builtValue, writtenValue]: unknown[] = [object, written];
  for (const step of field) {
    builtValue = getOwn(builtValue, step);
    const { name } = toMap(builtValue);
    const index =
      Array.isArray(writtenValue) && name !== undefined
        ? writtenValue.findIndex((item) => toMap(item).name === name)
        : step;
    writtenValue = getOwn(writtenValue, index);
    if (writtenValue === undefined || (typeof writtenValue !== "object" && writtenValue !== builtValue)) break;
    found.push(index);
  }
  return found;
};
