import { isAbsolute, relative, resolve, sep } from "node:path";
import { pathToFileURL } from "node:url";
import { stringifySafely } from "../../cli/terminal.ts";
import type { CheckVerdict, Denial, ObjectCheckResult, ObjectEvaluation } from "../evaluation/object-evaluation.ts";

/** An input that could not be read, in the forms in which reports show it. */
export interface InputReadFailure {
  /** For JSON reports: an element of their list `faults`. */
  fault: object;
  /** For reports in text. */
  text: string;
  /** For reports that list only objects: a result like that of an object whose verdict is undecided. */
  checked: ObjectCheckResult;
}

/** The counts at the end of a check: objects by verdict, warnings and faults. */
export interface CheckSummary extends Record<CheckVerdict, number> {
  objects: number;
  /** The number of allowed objects whose kind is unknown and that no webhook entry can match. */
  noRule: number;
  warnings: number;
  faults: number;
  /** The number of denied objects with a denial that `--known` doesn't have; absent without `--known`. */
  newlyDenied?: number;
}

/** What a check knows at its end: the counts, what it could not read, and notes. */
export interface FinishedCheck {
  summary: CheckSummary;
  unreadableInputs: readonly InputReadFailure[];
  notes: readonly string[];
  /** True if a signal ended the check early. */
  wasInterrupted: boolean;
}

/**
 * Writes findings as they come, and keeps no evaluations in memory, so that a check can have any number of objects. A
 * report that can't write a finding at once keeps only what it will write.
 */
export interface CheckReportWriter<Finding = ObjectEvaluation> {
  /** Adds a finding. Returns the text to write at once; empty if the finding is written later. */
  add(finding: Finding): string;
  end(closing: FinishedCheck): Iterable<string>;
}

/** A report that uses only the member `checked` of an evaluation. */
export type CheckResultReportWriter = CheckReportWriter<Pick<ObjectEvaluation, "checked">>;

/** Returns a value as JSON that is safe for a log, indented as `JSON.stringify` would at this depth. */
export const stringifyAt = (value: unknown, depth: number): string =>
  stringifySafely(value).replaceAll("\n", `\n${"  ".repeat(depth)}`);

/**
 * Opens a JSON list that is written element by element: each call returns the text to write next. `depth` is the
 * indentation of the elements.
 */
export const createJsonListFormatter = (depth: number) => {
  const pad = (levels: number) => `\n${"  ".repeat(levels)}`;
  let isBegun = false;
  return {
    add: (member: unknown) => {
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

/** Returns a file's URI for SARIF and other reports; `path` is a result of `toRepositoryPath`. */
export const toReportUri = (path: string): { uri: string; isRelative: boolean } => {
  if (isAbsolute(path)) return { uri: pathToFileURL(path).href, isRelative: false };
  // Escaping includes colons: a first segment with a colon would read as a scheme.
  const uri = path.toWellFormed().split("/").map(encodeURIComponent).join("/");
  return { uri, isRelative: true };
};

/** Returns the line of the field that a denial is about, or else the line where the object begins. */
export const getDenialLine = ({ line }: ObjectCheckResult, denial?: Denial): number | undefined => denial?.line ?? line;

export const formatDenial = ({ message, suggestion }: Denial): string =>
  suggestion === undefined ? message : `${message}\nTo fix it, ${suggestion}`;
