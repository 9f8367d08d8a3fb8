import { isAbsolute, relative, resolve, sep } from "node:path";
import { pathToFileURL } from "node:url";
import type { Checked, Denial } from "../evaluation/result.ts";

/** What readers of reports take paths to be relative to: the checkout, in a pipeline, else where we run. */
const here = (): string => process.env.GITHUB_WORKSPACE || process.cwd();

/** A file's path as a repository has it, with `/`; undefined for standard input and what no file holds. */
export const toRepositoryPath = (file: string | undefined, root = here()): string | undefined => {
  if (file === undefined || file === "-") return undefined;
  const path = relative(root, resolve(file));
  // Outside, there is no other name for it than its own.
  const isOutside = path === ".." || path.startsWith(`..${sep}`) || isAbsolute(path) || path === "";
  return (isOutside ? resolve(file) : path).replaceAll(sep, "/");
};

/** As `pathIn`, as a URI, and whether that is relative. */
export const toUri = (path: string): { uri: string; isRelative: boolean } => {
  if (isAbsolute(path)) return { uri: pathToFileURL(path).href, isRelative: false };
  // A first segment with a colon would read as a scheme.
  const uri = path.toWellFormed().split("/").map(encodeURIComponent).join("/");
  return { uri, isRelative: true };
};

/** Where something stands that was said of an object. */
export const lineOf = ({ line }: Checked, denial?: Denial): number | undefined => denial?.line ?? line;

/** What a rule said, and what to do about it. */
export const formatDenial = ({ message, suggestion }: Denial): string =>
  suggestion === undefined ? message : `${message}\nTo mend it, ${suggestion}`;
