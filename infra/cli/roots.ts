import { existsSync } from "node:fs";
import { dirname, extname, join, sep } from "node:path";
import { fileURLToPath } from "node:url";

/** The extension of Postern's own modules: `.ts` in a checkout, `.js` in the installed package. */
export const moduleExtension = extname(import.meta.url);

/** The folder of Postern's own files, with a separator at the end: a checkout, or the installed package. */
export const packageRoot = fileURLToPath(new URL("../../", import.meta.url));

const hasConfig = (folder: string) => existsSync(join(folder, "postern.yaml"));

const findConfigFolder = (folder: string): string | undefined => {
  if (hasConfig(folder)) return folder;
  return folder === dirname(folder) ? undefined : findConfigFolder(dirname(folder));
};

/**
 * Returns the nearest folder with a postern.yaml, from the working directory upwards; else the project that has the
 * package installed; else the working directory.
 */
const findProjectRoot = (): string => {
  const [installedIn = ""] = packageRoot.split(`${sep}node_modules${sep}`);
  return findConfigFolder(process.cwd()) ?? (hasConfig(installedIn) ? installedIn : process.cwd());
};

/** The folder of postern.yaml, functions/ and what commands write, with a separator at the end. */
export const projectRoot = moduleExtension === ".ts" ? packageRoot : join(findProjectRoot(), sep);
