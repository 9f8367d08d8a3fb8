import { isAbsolute, relative, resolve, sep } from "node:path";
import { pathToFileURL } from "node:url";
import type { CheckResult, CheckVerdict, Denial, Evaluation } from "../evaluation/evaluation.ts";

export interface ReadFailure {
  fault: object;
  text: string;
  /** The same as an undecided object. */
  checked: CheckResult;
}

export interface Summary extends Record<CheckVerdict, number> {
  objects: number;
  /** Allowed objects of unknown kinds that no entry can match. */
  noRule: number;
  warnings: number;
  faults: number;
}

export interface CheckEnd {
  summary: Summary;
  unread: readonly ReadFailure[];
  notes: readonly string[];
  /** True if a signal ended the check early. */
  isCut: boolean;
}

/** Writes findings as they come and keeps none, so that their number doesn't matter. */
export interface Report<Finding = Evaluation> {
  /** Returns the text to write now; empty if it has to wait. */
  add(finding: Finding): string;
  end(closing: CheckEnd): Iterable<string>;
}

/** A report that reads only `checked`. */
export type ResultReport = Report<Pick<Evaluation, "checked">>;

/** Returns a value as JSON, indented as `JSON.stringify` would at this depth. */
export const stringifyAt = (value: unknown, depth: number): string =>
  JSON.stringify(value, null, 2).replaceAll("\n", `\n${"  ".repeat(depth)}`);

export interface JsonList {
  add(member: unknown): string;
  end(): string;
}

/** `depth` is that of the members. */
export const openJsonList = (depth: number): JsonList => {
  const pad = (levels: number) => `\n${"  ".repeat(levels)}`;
  let isBegun = false;
  return {
    add: (member) => {
      const before = isBegun ? "," : "[";
      isBegun = true;
      return `${before}${pad(depth)}${stringifyAt(member, depth)}`;
    },
    end: () => (isBegun ? `${pad(depth - 1)}]` : "[]"),
  };
};

/** Returns the folder that paths in reports start at: the checkout in a GitHub workflow, or the current folder. */
const getRootFolder = (): string => process.env.GITHUB_WORKSPACE || process.cwd();

/** Returns a file's path in the repository, with `/`; undefined for standard input and objects of a cluster. */
export const toRepositoryPath = (file: string | undefined, root = getRootFolder()): string | undefined => {
  if (file === undefined || file === "-") return undefined;
  const path = relative(root, resolve(file));
  // A file outside the repository keeps its absolute path.
  const isOutside = path === ".." || path.startsWith(`..${sep}`) || isAbsolute(path) || path === "";
  return (isOutside ? resolve(file) : path).replaceAll(sep, "/");
};

/** Takes a path from `toRepositoryPath`. */
export const toUri = (path: string): { uri: string; isRelative: boolean } => {
  if (isAbsolute(path)) return { uri: pathToFileURL(path).href, isRelative: false };
  // Escaping includes colons: a first segment with a colon would read as a scheme.
  const uri = path.toWellFormed().split("/").map(encodeURIComponent).join("/");
  return { uri, isRelative: true };
};

export const getDenialLine = ({ line }: CheckResult, denial?: Denial): number | undefined => denial?.line ?? line;

export const formatDenial = ({ message, suggestion }: Denial): string =>
  suggestion === undefined ? message : `${message}\nTo fix it, ${suggestion}`;
