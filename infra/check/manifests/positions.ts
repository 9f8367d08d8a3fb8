import { isCollection, isMap, isNode, isScalar, isSeq } from "yaml";
import type { Manifest, Path, Source } from "./manifests.ts";
import type { Piece } from "./plain-yaml.ts";
import {
  type Composed,
  openPlaces,
  type Places,
  type Position,
  parseDocuments,
  parsePiece,
  readPieces,
} from "./yaml.ts";

/** Caches one file, because positions are asked for file by file. */
let last: Known | undefined;

interface Known {
  source: Source;
  pieces: readonly Piece[];
  places: Map<number, Places | undefined>;
  documents: Map<number, Composed>;
}

const readOnce = (source: Source): Known => {
  if (last?.source !== source)
    last = { source, pieces: readPieces(source.text)?.pieces ?? [], places: new Map(), documents: new Map() };
  return last;
};

const placesIn = (source: Source, index: number): Places | undefined => {
  const { pieces, places } = readOnce(source);
  const piece = pieces[index];
  if (piece !== undefined && !places.has(index)) places.set(index, openPlaces(source.text, piece));
  return places.get(index);
};

const documentOf = (source: Source, index: number): Composed | undefined => {
  const { pieces, documents } = readOnce(source);
  if (documents.has(index)) return documents.get(index);
  const piece = pieces[index];
  const all = piece === undefined ? parseDocuments(source.text) : parsePiece(source.text, piece);
  for (const one of all) documents.set(piece === undefined ? documents.size : index, one);
  return documents.get(index);
};

/** Returns the position of a field; if it isn't in the file, of its nearest ancestor that is. */
export const positionOf = ({ source, document, path, line }: Omit<Manifest, "object">, field: Path): Position => {
  const places = placesIn(source, document);
  if (places !== undefined) return places([...path, ...field]);
  const { document: parsed, positionOf: positionAt } = documentOf(source, document) ?? {};
  let position = { line, column: 1 };
  let node: unknown = parsed?.contents;
  if (parsed === undefined || positionAt === undefined) return position;
  const at = (node: unknown) => {
    if (isNode(node) && node.range) position = positionAt(node.range[0]);
  };
  at(path.length === 0 ? node : parsed.getIn(path, true));
  for (const step of [...path, ...field]) {
    if (isNode(node) && !isCollection(node)) break;
    const pair = isMap(node)
      ? node.items.find(({ key }) => (isScalar(key) ? String(key.value) : "") === String(step))
      : undefined;
    const inner = isSeq(node) ? node.items[Number(step)] : pair?.value;
    if (inner === undefined) break;
    at(isSeq(node) ? inner : pair?.key);
    node = inner;
  }
  return position;
};
