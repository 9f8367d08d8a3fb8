import {
  Composer,
  type Document,
  isCollection,
  isMap as isMapNode,
  isNode,
  isScalar,
  isSeq,
  LineCounter,
  Parser,
  type ScalarTag,
} from "yaml";
import { isMap } from "#lib/policy/tree.ts";
import { sentenceOf } from "../complaint.ts";

/** A file, or what came by standard input. */
export interface Source {
  /** As the user named it; `-` is standard input. */
  name: string;
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

export const faultText = ({ file, line, sentence }: Fault): string => `${nameOf(file)}:${line} ${sentence}`;

/** A file as it is called in a sentence. */
export const nameOf = (file: string): string => (file === "-" ? "standard input" : file);

/** What a file holds, and what is wrong with it. */
export interface Documents {
  manifests: Manifest[];
  /** Documents that are no manifests, for there is no apiVersion or no kind in them: of each its line. */
  strangers: number[];
  faults: Fault[];
}

/** Deeper than any schema, and less deep than what makes a program stumble. */
const deepest = 200;

type Tags = Extract<
  NonNullable<ConstructorParameters<typeof Composer>[0]>["customTags"],
  (...args: never[]) => unknown
>;

/**
 * kubectl takes YAML 1.1, where 0644 is octal and `yes` is true, but knows no times in it, takes 0o644 as well, and wants
 * a digit before an exponent: `e1` is a text.
 */
const tags: Tags = (all) => {
  const own = all.flatMap((tag): ReturnType<Tags> => {
    if (typeof tag === "string") return tag === "timestamp" ? [] : [tag];
    if (tag.tag === "tag:yaml.org,2002:timestamp" || ("format" in tag && tag.format === "TIME")) return [];
    return "format" in tag && tag.format === "EXP" ? [{ ...tag, test: exponent } as ScalarTag] : [tag];
  });
  return [...own, "intOct"];
};

const exponent = /^[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)[eE][-+]?[0-9]+$/;

const options = {
  version: "1.1",
  customTags: tags,
  prettyErrors: false,
  stringKeys: true,
  logLevel: "silent",
} as const;

/** Every document of a text. */
export const composed = function* (text: string): Generator<{ document: Document.Parsed; lines: LineCounter }> {
  const lines = new LineCounter();
  for (const document of new Composer(options).compose(new Parser(lines.addNewLine).parse(text)))
    yield { document, lines };
};

/** Every object that a text holds; Lists are taken apart. */
export const manifestsIn = (source: Source): Documents => {
  const found: Documents = { manifests: [], strangers: [], faults: [] };
  const complain = (line: number, sentence: string) => void found.faults.push({ file: source.name, line, sentence });
  const mayAlias = source.text.includes("&") && source.text.includes("*");
  let index = -1;
  let line = 1;
  try {
    for (const { document, lines } of composed(source.text)) {
      index++;
      line = lineAt(document.contents, lines, line);
      const [broken] = document.errors;
      if (broken) {
        complain(lines.linePos(broken.pos[0]).line, `is no YAML: ${wordsOf(broken)}`);
        continue;
      }
      const value = contentOf(document, mayAlias);
      if (value === null || value === undefined) continue;
      for (const { path, value: object } of objectsIn(value)) {
        const place = path.length === 0 ? line : lineAt(document.getIn(path, true), lines, line);
        const fault = faultIn(object);
        if (fault !== undefined) complain(place, fault);
        else if (!isNamed(object)) found.strangers.push(place);
        else found.manifests.push({ source, document: index, path, line: place, object });
      }
    }
  } catch (error) {
    complain(line, `can't be read: ${wordsOf(error)}`);
  }
  return found;
};

/** What recursion ended on is the text's depth, not its size. */
const wordsOf = (error: unknown) =>
  sentenceOf(error).replace(/^Maximum call stack size exceeded$/, "it is nested too deeply");

const lineAt = (node: unknown, lines: LineCounter, otherwise: number): number =>
  isNode(node) && node.range ? lines.linePos(node.range[0]).line : otherwise;

/** What aliases lead to is of its own in each place: who changes one must not change the other. */
const contentOf = (document: Document.Parsed, mayAlias: boolean): unknown => {
  const value: unknown = document.toJS();
  return mayAlias ? JSON.parse(JSON.stringify(value) ?? "null") : value;
};

/** An object, or those in a List; what is in a typed one need not say again what it is. */
const objectsIn = (value: unknown): { path: Path; value: unknown }[] => {
  const { apiVersion, kind, items } = Object(value);
  if (typeof kind !== "string" || !kind.endsWith("List") || !Array.isArray(items)) return [{ path: [], value }];
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
  if (isDeeper(value, deepest)) return `is nested deeper than ${deepest} levels`;
  if (!isNamed(value)) return undefined;
  const { metadata } = value;
  if (metadata === undefined || metadata === null) return undefined;
  if (!isMap(metadata)) return "metadata must be a map";
  for (const key of ["name", "generateName", "namespace"])
    if (metadata[key] != null && typeof metadata[key] !== "string") return `metadata.${key} must be a text`;
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

const isDeeper = (value: unknown, levels: number): boolean =>
  typeof value === "object" &&
  value !== null &&
  (levels === 0 || Object.values(value).some((inner) => isDeeper(inner, levels - 1)));

/** Where something is written. */
export interface Position {
  line: number;
  column: number;
}

let last: { source: Source; documents: { document: Document.Parsed; lines: LineCounter }[] } | undefined;

/** Where a field of an object is written; of one that isn't, the nearest above it that is. */
export const positionOf = ({ source, document, path, line }: Manifest, field: Path): Position => {
  // Who asks goes from file to file.
  if (last?.source !== source) last = { source, documents: [...composed(source.text)] };
  const { document: parsed, lines } = last.documents[document] ?? {};
  let position = { line, column: 1 };
  let node: unknown = parsed?.contents;
  if (parsed === undefined || lines === undefined) return position;
  const at = (place: unknown) => {
    if (!isNode(place) || !place.range) return;
    const { line, col } = lines.linePos(place.range[0]);
    position = { line, column: col };
  };
  at(path.length === 0 ? node : parsed.getIn(path, true));
  for (const step of [...path, ...field]) {
    if (isNode(node) && !isCollection(node)) break;
    const pair = isMapNode(node)
      ? node.items.find(({ key }) => (isScalar(key) ? String(key.value) : "") === String(step))
      : undefined;
    const inner = isSeq(node) ? node.items[Number(step)] : pair?.value;
    if (inner === undefined) break;
    at(isSeq(node) ? inner : pair?.key);
    node = inner;
  }
  return position;
};
