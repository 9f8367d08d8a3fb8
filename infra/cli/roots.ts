import { existsSync } from "node:fs";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The extension of Postern's own modules: `.ts` in a checkout, `.js` in the installed package. */
export const moduleExtension = extname(import.meta.url);

/** The folder of Postern's own files, with a separator at the end: a checkout, or the installed package. */
export const packageRoot = fileURLToPath(new URL("../../", import.meta.url));

/** Returns the nearest folder with a postern.yaml from this one upwards; the folder itself if there is none. */
export const findProjectRoot = (folder: string): string => {
  for (let found = folder; ; found = dirname(found)) {
    if (existsSync(join(found, "postern.yaml"))) return found;
    if (found === dirname(found)) return folder;
  }
};

/** The folder of postern.yaml, functions/ and what commands write, with a separator at the end. */
export const projectRoot = moduleExtension === ".ts" ? packageRoot : join(findProjectRoot(process.cwd()), "/");
