import { type Document, isAlias, isMap as isMapNode, isNode, isScalar, isSeq, visit } from "yaml";
import { isMap } from "#lib/json.ts";
import { sentenceOf } from "../../cli/complaint.ts";
import { openPlaces, type Places, parseDocuments, readPieces } from "./yaml.ts";

/** A file, or what came by standard input. */
export interface Source {
  /** As the user named it; `-` is standard input. */
  name: string;
  /** The given folder that the file was found in; of a file that was named, its own folder. */
  folder?: string;
  /** The byte order mark before the text, where it has one. */
  mark?: string;
  text: string;
}

/** Steps from the top of a document to something in it. */
export type Path = readonly (string | number)[];

/** One object, and where it is written. */
export interface Manifest {
  source: Source;
  /** Of a file with several documents. */
  document: number;
  /** Of an object in a List: the way to it. */
  path: Path;
  line: number;
  object: Record<string, unknown>;
}

/** What is wrong with a place in a file, in a sentence without its subject. */
export interface Fault {
  file: string;
  line: number;
  sentence: string;
}

export const formatFault = ({ file, line, sentence }: Fault): string => `${toSourceName(file)}:${line} ${sentence}`;

/** A file as it is called in a sentence. */
export const toSourceName = (file: string): string => (file === "-" ? "standard input" : file);

/** What a file holds, and what is wrong with it. */
export interface Documents {
  manifests: Manifest[];
  /** Documents that are no manifests, for there is no apiVersion or no kind in them: of each its line. */
  strangers: number[];
  faults: Fault[];
}

/** Deeper than any schema, and less deep than what makes a program stumble. */
const deepest = 200;

/** Every object that a text holds; Lists are taken apart. */
export const parseManifests = (source: Source): Documents => {
  const found: Documents = { manifests: [], strangers: [], faults: [] };
  const complain = (line: number, sentence: string) => void found.faults.push({ file: source.name, line, sentence });
  let line = 1;
  const take = (document: number, value: unknown, lineOf: (path: Path) => number) => {
    if (value === null || value === undefined) return;
    for (const { path, value: object } of objectsIn(value)) {
      const place = path.length === 0 ? line : lineOf(path);
      const fault = faultIn(object);
      if (fault !== undefined) complain(place, fault);
      else if (!isNamed(object)) found.strangers.push(place);
      else found.manifests.push({ source, document, path, line: place, object });
    }
  };
  try {
    const { pieces, broken } = readPieces(source.text) ?? {};
    const lists = pieces?.map((piece) => (isList(piece.value) ? openPlaces(source.text, piece) : ofOne));
    // On which lines a List's items are, only a parser may know.
    if (pieces !== undefined && lists !== undefined && !lists.includes(undefined)) {
      for (const [index, piece] of pieces.entries()) {
        line = piece.line;
        take(index, piece.value, (path) => lists[index]?.(path).line ?? line);
      }
      if (broken !== undefined) complain(broken, "is no JSON, as what is before it");
      return found;
    }
    const mayAlias = source.text.includes("&") && source.text.includes("*");
    const mayMerge = source.text.includes("<<");
    let index = -1;
    for (const { document, positionOf } of parseDocuments(source.text)) {
      index++;
      const lineOf = (node: unknown) => (isNode(node) && node.range ? positionOf(node.range[0]).line : line);
      line = lineOf(document.contents);
      const [fault] = document.errors;
      if (fault) complain(positionOf(fault.pos[0]).line, `is no YAML: ${wordsOf(fault)}`);
      else take(index, contentOf(document, mayAlias, mayMerge), (path) => lineOf(document.getIn(path, true)));
    }
    if (broken !== undefined) complain(broken, "is no JSON, as what is before it");
  } catch (error) {
    complain(line, `can't be read: ${wordsOf(error)}`);
  }
  return found;
};

const ofOne: Places = () => {
  throw new Error("what is no List has no items");
};

/** Some messages speak of the program that reads, and not of what it reads. */
const wordsOf = (error: unknown) => {
  const sentence = sentenceOf(error);
  return plainly.find(([pattern]) => pattern.test(sentence))?.[1] ?? sentence;
};

const plainly: [RegExp, string][] = [
  // What recursion ended on is the text's depth, not its size.
  [/^Maximum call stack size exceeded$/, "it is nested too deeply"],
  [/^Converting circular structure to JSON/, "an alias stands within what it leads to"],
  [/^With stringKeys, all keys must be strings$/, "a key must be a text, neither a map nor a list"],
];

/** What aliases lead to is of its own in each place: who changes one must not change the other. */
const contentOf = (document: Document.Parsed, mayAlias: boolean, mayMerge: boolean): unknown => {
  if (mayMerge) mergeInOrder(document);
  const value: unknown = document.toJS();
  return mayAlias ? JSON.parse(JSON.stringify(value) ?? "null") : value;
};

/** For kubectl, what is merged into a map comes in the place of what stands there before it; for YAML, of nothing. */
const mergeInOrder = (document: Document.Parsed): void => {
  visit(document, {
    Pair: (_, { key }) => {
      if (!isScalar(key) || key.value !== "<<" || key.type !== "PLAIN") return;
      key.addToJSMap = (context, map, value) => {
        // In its context, aliases are counted, so that few of them can't make very many.
        const target = (node: unknown) => (isAlias(node) ? node.resolve(document, context) : node);
        const merged = target(value);
        // Of several, the first one counts.
        for (const one of isSeq(merged) ? merged.items.toReversed() : [merged]) {
          const source = target(one);
          if (!isMapNode(source)) throw new Error("what is merged by << must be a map, or several");
          for (const [name, inner] of source.toJSON<Map<string, unknown>>(null, context, Map))
            if (map instanceof Map) map.set(name, inner);
            else
              Object.defineProperty(map, name, { value: inner, writable: true, enumerable: true, configurable: true });
        }
      };
    },
  });
};

interface List extends Record<string, unknown> {
  kind: string;
  items: unknown[];
}

const isList = (value: unknown): value is List => {
  const { kind, items } = Object(value);
  return typeof kind === "string" && kind.endsWith("List") && Array.isArray(items);
};

/** An object, or those in a List; what is in a typed one need not say again what it is. */
const objectsIn = (value: unknown): { path: Path; value: unknown }[] => {
  if (!isList(value)) return [{ path: [], value }];
  const { apiVersion, kind, items } = value;
  const ofEach = kind === "List" ? {} : { apiVersion, kind: kind.slice(0, -"List".length) };
  return items.flatMap((item: unknown, index) =>
    objectsIn(isMap(item) ? { ...ofEach, ...item } : item).map(({ path, value }) => {
      return { path: ["items", index, ...path], value };
    }),
  );
};

const isNamed = (value: unknown): value is Record<string, unknown> => {
  const { apiVersion, kind } = Object(value);
  return isMap(value) && isWord(apiVersion) && isWord(kind);
};

const isWord = (value: unknown) => typeof value === "string" && value !== "";

/** What no API server could decode, of what every object has; its own fields are its kind's affair. */
const faultIn = (value: unknown): string | undefined => {
  if (!isMap(value)) return "is no manifest: it must be a map";
  if (value.kind === "List" && value.apiVersion === "v1") return "items must be a list";
  if (isDeeper(value, deepest)) return `is nested deeper than ${deepest} levels`;
  if (!isNamed(value)) return undefined;
  const { metadata } = value;
  if (metadata === undefined || metadata === null) return undefined;
  if (!isMap(metadata)) return "metadata must be a map";
  for (const key of ["name", "generateName", "namespace"])
    if (metadata[key] != null && typeof metadata[key] !== "string")
      return `metadata.${key} must be a text, not ${describeValue(metadata[key])}`;
  for (const key of ["labels", "annotations"]) {
    const map = metadata[key] ?? {};
    if (!isMap(map)) return `metadata.${key} must be a map`;
    const wrong = Object.keys(map).find((name) => map[name] !== null && typeof map[name] !== "string");
    if (wrong !== undefined)
      return `metadata.${key}.${wrong} must be a text; in quotes ${JSON.stringify(map[wrong])} would be one`;
  }
  for (const key of ["finalizers", "ownerReferences"])
    if (metadata[key] != null && !Array.isArray(metadata[key])) return `metadata.${key} must be a list`;
  return undefined;
};

const describeValue = (value: unknown) =>
  typeof value === "object" ? "a map or a list" : `${value}; in quotes it would be one`;

const isDeeper = (value: unknown, levels: number): boolean =>
  typeof value === "object" &&
  value !== null &&
  (levels === 0 || Object.values(value).some((inner) => isDeeper(inner, levels - 1)));
