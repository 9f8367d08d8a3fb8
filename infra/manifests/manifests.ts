import { type Document, isAlias, isMap as isMapNode, isNode, isScalar, isSeq, visit, type YAMLParseError } from "yaml";
import { exactJson } from "#lib/exact-json.ts";
import { isMap, toMap } from "#lib/json.ts";
import { toSentence } from "../cli/complaint.ts";
import { copyAnnotation } from "../diff/secret-values.ts";
import { createPositionFinder, type PositionFinder, parseJsonOrPlainYaml, parseYamlDocuments } from "./yaml.ts";

export interface ManifestSourceText {
  /** The path of the file, as the command line gives it; `-` for standard input. */
  name: string;
  /** The given folder that the file was found in; for a named file, its own folder. */
  folder?: string;
  /** The byte order mark, if the text began with one. */
  mark?: string;
  text: string;
}

/** The steps from the top of a document to a value. */
export type FieldPath = readonly (string | number)[];

export interface Manifest {
  source: ManifestSourceText;
  /** The index of the document in its file. */
  document: number;
  /** The object's path in its document if it is an item of a List, such as `items[2]`; otherwise empty. */
  path: FieldPath;
  line: number;
  object: Record<string, unknown>;
  /** The object in the source, if a program made `object` of it. */
  written?: Record<string, unknown>;
  /** The folder of the kustomization or the chart that the object was built from. */
  build?: string;
  /** Keys that a map of the document has more than once; the last one counts. */
  repeated?: readonly { key: string; line: number }[];
}

/** A fault of a manifest. `sentence` has no subject, because the file and the line are printed before it. */
export interface ManifestFault {
  file: string;
  line: number;
  sentence: string;
}

export const formatManifestFault = ({ file, line, sentence }: ManifestFault): string =>
  `${toSourceName(file)}:${line} ${sentence}`;

export const toSourceName = (file: string): string => (file === "-" ? "standard input" : file);

interface ManifestParseResult {
  manifests: Manifest[];
  /** The lines of documents without an apiVersion or a kind. */
  strangers: number[];
  faults: ManifestFault[];
}

/** The limit for the depth of a manifest: deeper than any schema, but not deep enough to overflow the stack. */
const deepest = 200;

/**
 * Parses a manifest text into its objects and faults. The items of Lists become objects of their own. With `acceptsRepeated`,
 * a key may be there twice in a map, as kubectl reads it.
 */
export const parseManifests = (source: ManifestSourceText, acceptsRepeated = false): ManifestParseResult => {
  const found: ManifestParseResult = { manifests: [], strangers: [], faults: [] };
  const addFault = (line: number, sentence: string) => void found.faults.push({ file: source.name, line, sentence });
  let line = 1;
  // The text is split once, because it may have thousands of repeated keys.
  let lines: string[] | undefined;
  const take = (
    document: number,
    value: unknown,
    findLine: (path: FieldPath) => number,
    repeated: Manifest["repeated"] = [],
  ) => {
    if (value === null || value === undefined) return;
    for (const { path, value: object } of listObjects(value)) {
      const place = path.length === 0 ? line : findLine(path);
      const fault = findFault(object);
      if (fault !== undefined) addFault(place, fault);
      else if (!isNamed(object)) found.strangers.push(place);
      else
        found.manifests.push({ source, document, path, line: place, object, ...(repeated.length > 0 && { repeated }) });
    }
  };
  try {
    const { pieces, broken } = parseJsonOrPlainYaml(source.text) ?? {};
    const lists = pieces?.map((piece) =>
      isList(piece.value) ? createPositionFinder(source.text, piece) : refuseItems,
    );
    // The lines of a List's items may be unknown here; then the full YAML parser below reads the file.
    if (pieces !== undefined && lists !== undefined && !lists.includes(undefined)) {
      for (const [index, piece] of pieces.entries()) {
        line = piece.line;
        take(index, piece.value, (path) => lists[index]?.(path).line ?? line);
      }
      if (broken !== undefined) addFault(broken, "is no JSON, as what is before it");
      return found;
    }
    const mayAlias = source.text.includes("&") && source.text.includes("*");
    const mayMerge = source.text.includes("<<");
    let index = -1;
    for (const { document, getPosition } of parseYamlDocuments(source.text)) {
      index++;
      const getLine = (node: unknown) => (isNode(node) && node.range ? getPosition(node.range[0]).line : line);
      line = getLine(document.contents);
      const isAccepted = ({ code }: YAMLParseError) => acceptsRepeated && code === "DUPLICATE_KEY";
      const fault = document.errors.find((error) => !isAccepted(error));
      const repeated = document.errors.filter(isAccepted).map(({ pos: [from, to] }) => {
        const { line, column } = getPosition(from);
        lines ??= source.text.split("\n");
        return { key: lines[line - 1]?.slice(column - 1, column - 1 + to - from) ?? "", line };
      });
      if (fault) addFault(getPosition(fault.pos[0]).line, `is no YAML: ${describeError(fault)}`);
      else
        take(index, toContent(document, mayAlias, mayMerge), (path) => getLine(document.getIn(path, true)), repeated);
    }
    if (broken !== undefined) addFault(broken, "is no JSON, as what is before it");
  } catch (error) {
    addFault(line, `can't be read: ${describeError(error)}`);
  }
  return found;
};

const refuseItems: PositionFinder = () => {
  throw new Error("what is no List has no items");
};

/**
 * Returns an error's sentence for reports; replaces one that describes the parser instead of the text, and one that repeats
 * a part of the text, which may be a password: what can't be read may be a Secret.
 */
const describeError = (error: unknown) => {
  const sentence = toSentence(error);
  return plainSentences.find(([pattern]) => pattern.test(sentence))?.[1] ?? sentence.replace(/(?<=\w): .*$/s, "");
};

const plainSentences: [RegExp, string][] = [
  // A stack overflow means that the text is nested too deeply, not that it is too large.
  [/^Maximum call stack size exceeded$/, "it is nested too deeply"],
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

/** Returns the document as JSON; the values behind YAML aliases are copied, so that no two places share one. */
const toContent = (document: Document.Parsed, mayAlias: boolean, mayMerge: boolean): unknown => {
  if (mayMerge) mergeInOrder(document);
  const value: unknown = document.toJS();
  return mayAlias ? exactJson.parse(exactJson.stringify(value) ?? "null") : value;
};

/** Merges as kubectl does: keys from `<<` replace earlier keys of the map, while the YAML standard keeps those. */
const mergeInOrder = (document: Document.Parsed): void => {
  visit(document, {
    Pair: (_, { key }) => {
      if (!isScalar(key) || key.value !== "<<" || key.type !== "PLAIN") return;
      key.addToJSMap = (context, map, value) => {
        // The `context` counts resolved aliases, so that a few aliases can't expand into a huge document.
        const resolveAlias = (node: unknown) => (isAlias(node) ? node.resolve(document, context) : node);
        const merged = resolveAlias(value);
        // If YAML's `<<` merges several maps, the first one that has a key wins, so the others are applied before it.
        for (const alias of isSeq(merged) ? merged.items.toReversed() : [merged]) {
          const source = resolveAlias(alias);
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
  const { kind, items } = toMap(value);
  return typeof kind === "string" && kind.endsWith("List") && Array.isArray(items);
};

/** Returns an object, or the items of a List; the items of a typed List may omit apiVersion and kind. */
const listObjects = (value: unknown): { path: FieldPath; value: unknown }[] => {
  if (!isList(value)) return [{ path: [], value }];
  const { apiVersion, kind, items } = value;
  const ofEach = kind === "List" ? {} : { apiVersion, kind: kind.slice(0, -"List".length) };
  return items.flatMap((item: unknown, index) =>
    listObjects(isMap(item) ? { ...ofEach, ...item } : item).map(({ path, value }) => {
      return { path: ["items", index, ...path], value };
    }),
  );
};

const isNamed = (value: unknown): value is Record<string, unknown> => {
  const { apiVersion, kind } = toMap(value);
  return isMap(value) && isWord(apiVersion) && isWord(kind);
};

const isWord = (value: unknown) => typeof value === "string" && value !== "";

/** Returns why no API server could decode a manifest's common fields, if so; other fields depend on the kind. */
const findFault = (value: unknown): string | undefined => {
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
    if (wrong !== undefined) {
      const shown = wrong === copyAnnotation ? "" : `; in quotes ${exactJson.stringify(map[wrong])} would be one`;
      return `metadata.${key}.${wrong} must be a text${shown}`;
    }
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
