import { type Document, isAlias, isMap as isMapNode, isNode, isScalar, isSeq, visit, type YAMLParseError } from "yaml";
import { exactJson } from "#lib/exact-json.ts";
import { isDeeper, isMap, toMap } from "#lib/json.ts";
import { explainYamlError } from "../cli/yaml-document.ts";
import { lastAppliedAnnotation } from "../diff/secret-values.ts";
import { createPositionFinder, parseJsonOrPlainYaml, parseYamlDocuments } from "./yaml.ts";

/** A text with manifests. */
export interface ManifestSourceText {
  /** The path of the file, as the command line gives it; `-` for standard input. */
  name: string;
  /** The folder that the user named, in which the file was found. For a named file, it is the file's folder. */
  folder?: string;
  /** The byte order mark, if the text began with one. */
  byteOrderMark?: string;
  text: string;
}

/** The steps from the top of a document to a value. */
export type FieldPath = readonly (string | number)[];

/** A Kubernetes object in a file. */
export interface Manifest {
  source: ManifestSourceText;
  /** The index of the document in its file. */
  document: number;
  /** The object's path in its document if it is an item of a List, such as `items[2]`; otherwise empty. */
  path: FieldPath;
  line: number;
  object: Record<string, unknown>;
  /** The object as the file has it, if kustomize or helm has made `object` from it. */
  written?: Record<string, unknown>;
  /** The folder of the kustomization or chart from which the object was built. */
  build?: string;
  /** Keys that a map in the document has more than once. The last value counts. */
  repeated?: readonly { key: string; line: number }[];
}

/** A fault of a manifest. `sentence` has no subject, for instance "is no YAML": file and line are printed before it. */
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
  nonManifestLines: number[];
  faults: ManifestFault[];
}

/** The deepest nesting of a manifest: deeper than any schema, but not deep enough to overflow the stack. */
const deepest = 200;

/**
 * Parses a text with manifests into objects and faults. Each item of a List becomes an object. With `readsLikeKubectl`,
 * a map may have the same key twice, as for kubectl, and metadata may have values that an API server refuses.
 */
export const parseManifests = (source: ManifestSourceText, { readsLikeKubectl = false } = {}): ManifestParseResult => {
  const found: ManifestParseResult = { manifests: [], nonManifestLines: [], faults: [] };
  const addFault = (line: number, sentence: string) => void found.faults.push({ file: source.name, line, sentence });
  let line = 1;
  // The lines of the text. It is split only once, because it may have thousands of repeated keys.
  let lines: string[] | undefined;
  const addObjects = (
    document: number,
    value: unknown,
    findLine: (path: FieldPath) => number,
    repeated: Manifest["repeated"] = [],
  ) => {
    if (value === null || value === undefined) return;
    for (const { path, value: object } of listObjects(value)) {
      const place = path.length === 0 ? line : findLine(path);
      const fault = findFault(object, readsLikeKubectl);
      if (fault !== undefined) addFault(fault.field ? findLine([...path, ...fault.field]) : place, fault.sentence);
      else if (!hasApiVersionAndKind(object)) found.nonManifestLines.push(place);
      else
        found.manifests.push({ source, document, path, line: place, object, ...(repeated.length > 0 && { repeated }) });
    }
  };
  try {
    const { pieces, invalidJsonLine } = parseJsonOrPlainYaml(source) ?? {};
    const itemFinders = pieces?.map((piece) =>
      isList(piece.value)
        ? createPositionFinder(source.text, piece)
        : (path: FieldPath) => createPositionFinder(source.text, piece)?.(path) ?? { line: piece.line, column: 1 },
    );
    // If the lines of a List's items are not known here, the full YAML parser below reads the text.
    if (pieces !== undefined && itemFinders !== undefined && !itemFinders.includes(undefined)) {
      for (const [index, piece] of pieces.entries()) {
        line = piece.line;
        addObjects(index, piece.value, (path) => itemFinders[index]?.(path).line ?? line);
      }
      if (invalidJsonLine !== undefined) addFault(invalidJsonLine, "is no JSON, but the text before it is");
      return found;
    }
    const mayAlias = source.text.includes("&") && source.text.includes("*");
    const mayMerge = source.text.includes("<<");
    let index = -1;
    for (const { document, getPosition } of parseYamlDocuments(source.text)) {
      index++;
      const getLine = (node: unknown) => (isNode(node) && node.range ? getPosition(node.range[0]).line : line);
      line = getLine(document.contents);
      const isAccepted = ({ code }: YAMLParseError) => readsLikeKubectl && code === "DUPLICATE_KEY";
      const fault = document.errors.find((error) => !isAccepted(error));
      const repeated = document.errors.filter(isAccepted).map(({ pos: [from, to] }) => {
        const { line, column } = getPosition(from);
        lines ??= source.text.split("\n");
        return { key: lines[line - 1]?.slice(column - 1, column - 1 + to - from) ?? "", line };
      });
      if (fault) addFault(getPosition(fault.pos[0]).line, `is no YAML: ${explainYamlError(fault)}`);
      else
        addObjects(
          index,
          toContent(document, mayAlias, mayMerge),
          (path) => getLine(document.getIn(path, true)),
          repeated,
        );
    }
    if (invalidJsonLine !== undefined) addFault(invalidJsonLine, "is no JSON, but the text before it is");
  } catch (error) {
    addFault(line, `can't be read: ${explainYamlError(error)}`);
  }
  return found;
};

/** Returns the document as a JSON value. Copies the value of each YAML alias, so that no two fields share an object. */
const toContent = (document: Document.Parsed, mayAlias: boolean, mayMerge: boolean): unknown => {
  if (mayMerge) mergeInOrder(document);
  const value: unknown = document.toJS();
  return mayAlias ? exactJson.parse(exactJson.stringify(value) ?? "null") : value;
};

/** Merges maps by `<<` as kubectl does: unlike in the YAML standard, merged keys replace earlier keys of the map. */
const mergeInOrder = (document: Document.Parsed): void => {
  visit(document, {
    Pair: (_, { key }) => {
      if (!isScalar(key) || key.value !== "<<" || key.type !== "PLAIN") return;
      key.addToJSMap = (context, map, value) => {
        // With `context`, the package counts resolved aliases, so that a few aliases can't expand into a huge document.
        const resolveAlias = (node: unknown) => (isAlias(node) ? node.resolve(document, context) : node);
        const merged = resolveAlias(value);
        // If `<<` merges several maps that have the same key, the first map counts, so it is applied last.
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

/** Returns an object, or the items of a List. Items of for instance a PodList may be without apiVersion and kind. */
const listObjects = (value: unknown): { path: FieldPath; value: unknown }[] => {
  if (!isList(value)) return [{ path: [], value }];
  const { apiVersion, kind, items } = value;
  const typeOfItems = kind === "List" ? {} : { apiVersion, kind: kind.slice(0, -"List".length) };
  return items.flatMap((item: unknown, index) =>
    listObjects(isMap(item) ? { ...typeOfItems, ...item } : item).map(({ path, value }) => {
      return { path: ["items", index, ...path], value };
    }),
  );
};

/** Reports whether a value has an apiVersion and a kind. */
const hasApiVersionAndKind = (value: unknown): value is Record<string, unknown> => {
  const { apiVersion, kind } = toMap(value);
  return isMap(value) && isWord(apiVersion) && isWord(kind);
};

const isWord = (value: unknown) => typeof value === "string" && value !== "";

/**
 * Returns why an API server can't decode the fields that all kinds have, such as metadata; undefined if it can. With
 * `readsLikeKubectl`, only what kubectl itself can't read is a fault.
 */
const findFault = (value: unknown, readsLikeKubectl: boolean): { sentence: string; field?: FieldPath } | undefined => {
  if (!isMap(value)) return { sentence: "is no manifest: it must be a map" };
  // The caller has replaced each List whose `items` are a list by these items. So `items` of this List is no list.
  if (value.kind === "List" && value.apiVersion === "v1") return { sentence: "items must be a list" };
  // A value that is nested in 200 levels is itself on level 201.
  if (isDeeper(value, deepest - 1)) return { sentence: `is nested deeper than ${deepest} levels` };
  // `parseManifests` reports such a value as no manifest.
  if (!hasApiVersionAndKind(value)) return undefined;
  const { metadata } = value;
  if (metadata === undefined || metadata === null) return undefined;
  const createFault = (keys: string[], sentence: string) => {
    return { sentence: `${["metadata", ...keys].join(".")} ${sentence}`, field: ["metadata", ...keys] };
  };
  if (!isMap(metadata)) return createFault([], "must be a map");
  for (const key of ["name", "namespace", ...(readsLikeKubectl ? [] : ["generateName"])])
    if (metadata[key] != null && typeof metadata[key] !== "string")
      return createFault([key], `must be a text, not ${describeValue(metadata[key])}`);
  if (readsLikeKubectl) return undefined;
  for (const key of ["labels", "annotations"]) {
    const map = metadata[key] ?? {};
    if (!isMap(map)) return createFault([key], "must be a map");
    const wrong = Object.keys(map).find((name) => map[name] !== null && typeof map[name] !== "string");
    if (wrong !== undefined) {
      // The annotation with kubectl's copy of the object may contain the values of a Secret, so it is not shown.
      const remedy = wrong === lastAppliedAnnotation ? "" : `; put ${exactJson.stringify(map[wrong])} in quotes`;
      return createFault([key, wrong], `must be a text${remedy}`);
    }
  }
  for (const key of ["finalizers", "ownerReferences"])
    if (metadata[key] != null && !Array.isArray(metadata[key])) return createFault([key], "must be a list");
  return undefined;
};

const describeValue = (value: unknown) =>
  typeof value === "object" ? "a map or a list" : `${value}; put it in quotes`;
