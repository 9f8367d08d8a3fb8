import { existsSync, globSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { dirname, join, normalize } from "node:path/posix";
import { packageRoot } from "../cli/roots.ts";

/** The text that follows the name of a file if the file isn't in the package. */
export const repositoryMark = " (in the repository)";

/** Matches a path from the root of the checkout. Other paths in pages are relative to the page's folder. */
const pathFromRoot = /^(?:\.github|docs|functions|infra|lib|test)\/./;

/** Reports whether a file or a folder exists. The path may have wildcards. */
type PathExists = (path: string) => boolean;

/** Changes the paths in pages of the package, so that they name files of the package. */
export const adaptPages = async (folder: string, pages: readonly string[]): Promise<void> => {
  const isInPackage = createPathExists(folder);
  const isInCheckout = createPathExists(packageRoot);
  for (const page of pages) {
    const file = join(folder, page);
    await writeFile(file, adaptPage(page, await readFile(file, "utf8"), isInPackage, isInCheckout));
  }
};

export const createPathExists =
  (root: string): PathExists =>
  (path) =>
    existsSync(join(root, path)) || (path.includes("*") && globSync(path, { cwd: root }).length > 0);

/** Returns the path from the checkout's root that a page means by `written`; empty if it is no path of a file. */
const findPathFromRoot = (page: string, written: string): string => {
  if (pathFromRoot.test(written)) return written;
  const isFileName = /\.\w+$/.test(written);
  // On a page in the root folder, a name such as `postern.yaml` means a file of the user's project.
  const isInRoot = dirname(page) === ".";
  return isFileName && !isInRoot ? normalize(join(dirname(page), written)) : "";
};

/**
 * Returns a page of the checkout with paths for the package. `lib/rule.ts` becomes `lib/rule.js`, because the package
 * contains compiled files. A file that only the checkout has gets a remark instead of a link. In commands, which users
 * run in the folder of their project, the paths of the package's files begin with `node_modules/postern/`.
 */
export const adaptPage = (page: string, text: string, isInPackage: PathExists, isInCheckout: PathExists): string => {
  /** Returns the path as the page of the package must write it; undefined if only the checkout has the file. */
  const locate = (written: string, path: string): string | undefined => {
    const compile = (name: string) => name.replace(/\.ts$/, ".js");
    if (isInPackage(path)) return written;
    if (isInPackage(compile(path))) return compile(written);
    return isInCheckout(path) ? undefined : written;
  };
  const adaptText = (prose: string) =>
    prose
      // A link: [label](target#anchor). The label may contain brackets.
      .replace(
        /\[((?:[^[\]]|\[[^\]]*\])*)\]\((?!https?:)([^)#\s*]+)(#[^)\s]*)?\)/g,
        (_, label, target, anchor = "") => {
          const found = locate(target, normalize(join(dirname(page), target)));
          return found === undefined ? `${label}${repositoryMark}` : `[${label}](${found}${anchor})`;
        },
      )
      // A path in backticks.
      .replace(/`([\w.*/-]+)`(?! \(in the repository\))/g, (span, written) => {
        const path = findPathFromRoot(page, written);
        if (path === "") return span;
        const found = locate(written, path);
        return found === undefined ? `${span}${repositoryMark}` : `\`${found}\``;
      });
  const adaptCommands = (block: string) =>
    block.replace(/(?<=[ "'])(?:functions|infra)\/[\w./-]+/g, (path) =>
      isInPackage(path) ? `node_modules/postern/${path}` : path,
    );
  return text
    .split(/(^```[\s\S]*?^```$)/m)
    .map((part, index) => (index % 2 === 1 ? adaptCommands(part) : adaptText(part)))
    .join("");
};
