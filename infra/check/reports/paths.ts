import { isAbsolute, relative, resolve, sep } from "node:path";
import { pathToFileURL } from "node:url";
import type { Checked, Denial } from "../evaluation/result.ts";

/** Returns the folder that paths in reports start at: the checkout in a GitHub workflow, or the current folder. */
const here = (): string => process.env.GITHUB_WORKSPACE || process.cwd();

/** Returns a file's path in the repository, with `/`; undefined for standard input and objects of a cluster. */
export const toRepositoryPath = (file: string | undefined, root = here()): string | undefined => {
  if (file === undefined || file === "-") return undefined;
  const path = relative(root, resolve(file));
  // A file outside the repository keeps its absolute path.
  const isOutside = path === ".." || path.startsWith(`..${sep}`) || isAbsolute(path) || path === "";
  return (isOutside ? resolve(file) : path).replaceAll(sep, "/");
};

/** Takes a path from `toRepositoryPath`. */
export const toUri = (path: string): { uri: string; isRelative: boolean } => {
  if (isAbsolute(path)) return { uri: pathToFileURL(path).href, isRelative: false };
  // Also escapes colons: a first segment with a colon would read as a scheme.
  const uri = path.toWellFormed().split("/").map(encodeURIComponent).join("/");
  return { uri, isRelative: true };
};

export const lineOf = ({ line }: Checked, denial?: Denial): number | undefined => denial?.line ?? line;

export const formatDenial = ({ message, suggestion }: Denial): string =>
  suggestion === undefined ? message : `${message}\nTo mend it, ${suggestion}`;
