import { existsSync, globSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { dirname, join, normalize } from "node:path/posix";
import { packageRoot } from "../cli/roots.ts";

/** What a page says after the name of a file that isn't in the package. */
export const repositoryMark = " (in the repository)";

/** The folders of a checkout whose files pages name by their paths from its root. */
const namedFolders = /^(?:\.github|docs|functions|infra|lib|test)\/./;

/** Reports whether a file or a folder is there; paths of pages may have wildcards. */
type IsThere = (path: string) => boolean;

/** Makes the pages of the package in a folder name files that the package has. */
export const adaptPages = async (folder: string, pages: readonly string[]): Promise<void> => {
  const isInPackage = createIsThere(folder);
  const isInCheckout = createIsThere(packageRoot);
  for (const page of pages) {
    const file = join(folder, page);
    await writeFile(file, adaptPage(page, await readFile(file, "utf8"), isInPackage, isInCheckout));
  }
};

export const createIsThere =
  (root: string): IsThere =>
  (path) =>
    existsSync(join(root, path)) || (path.includes("*") && globSync(path, { cwd: root }).length > 0);

/**
 * Returns a page of the checkout as the package has it. Sources are compiled in the package, so `lib/rule.ts` becomes
 * `lib/rule.js`; a file that only the checkout has is marked, and not linked to; commands name files from a project's
 * folder.
 */
export const adaptPage = (page: string, text: string, isInPackage: IsThere, isInCheckout: IsThere): string => {
  /** Returns the path as the package has it; undefined if only the checkout has the file. */
  const locate = (written: string, path: string): string | undefined => {
    const compile = (name: string) => name.replace(/\.ts$/, ".js");
    if (isInPackage(path)) return written;
    if (isInPackage(compile(path))) return compile(written);
    return isInCheckout(path) ? undefined : written;
  };
  const adaptText = (prose: string) =>
    prose
      .replace(
        /\[((?:[^[\]]|\[[^\]]*\])*)\]\((?!https?:)([^)#\s*]+)(#[^)\s]*)?\)/g,
        (_, label, target, anchor = "") => {
          const found = locate(target, normalize(join(dirname(page), target)));
          return found === undefined ? `${label}${repositoryMark}` : `[${label}](${found}${anchor})`;
        },
      )
      .replace(/`([\w.*/-]+)`(?! \(in the repository\))/g, (span, written) => {
        const beside = dirname(page) === "." ? "" : normalize(join(dirname(page), written));
        const path = namedFolders.test(written) ? written : /\.\w+$/.test(written) ? beside : "";
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
