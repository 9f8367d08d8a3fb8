import { existsSync } from "node:fs";
import { dirname, extname, join, relative, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { toOneLine } from "./terminal.ts";

/** The extension of Postern's own modules: `.ts` in a checkout, `.js` in the installed package. */
export const moduleExtension = extname(import.meta.url);

/** Whether Postern runs from a checkout, and not as a package. */
export const isCheckout = moduleExtension === ".ts";

/** The folder of Postern's own files, with a separator at the end: a checkout, or the installed package. */
export const packageRoot = fileURLToPath(new URL("../../", import.meta.url));

/** The project that a command works in. Code, besides Postern's own, is loaded from its folder alone. */
interface Project {
  /** The folder of postern.yaml, functions/ and what commands write, with a separator at the end. */
  root: string;
  /** The path of postern.yaml, which --config may name otherwise. */
  configFile: string;
  /** False if no postern.yaml was found. */
  hasConfig: boolean;
}

/** Returns the project of a postern.yaml. In a checkout of Postern, its root is that of the checkout. */
const toProject = (configFile: string, hasConfig = true): Project => {
  const root = isCheckout ? packageRoot : join(dirname(resolve(configFile)), sep);
  return { root, configFile, hasConfig };
};

/** Returns the path of a file in a folder, or in the nearest folder above it that has one. */
export const findNearestFile = (folder: string, name: string): string | undefined => {
  const file = join(folder, name);
  if (existsSync(file)) return file;
  return folder === dirname(folder) ? undefined : findNearestFile(dirname(folder), name);
};

/**
 * Returns the project of the nearest postern.yaml, from the working directory upwards; else that of the project that has
 * the package installed; else one without a postern.yaml. A file in another folder is named on standard error.
 */
const findProject = (): Project => {
  const [installedIn = ""] = packageRoot.split(`${sep}node_modules${sep}`);
  const besidePackage = join(isCheckout ? packageRoot : installedIn, "postern.yaml");
  const nearest = isCheckout ? undefined : findNearestFile(process.cwd(), "postern.yaml");
  const found = nearest ?? (existsSync(besidePackage) ? besidePackage : undefined);
  const hereFile = resolve("postern.yaml");
  if (found === undefined) return toProject(hereFile, false);
  if (found !== hereFile && !isCheckout)
    process.stderr.write(`uses ${toOneLine(relative("", found))}: this folder has no postern.yaml\n`);
  return toProject(found);
};

/** The variable that names the config to processes that `postern test` starts. */
export const configVariable = "POSTERN_CONFIG";

const { [configVariable]: inherited } = process.env;
let project = inherited === undefined ? undefined : toProject(inherited);

/** Makes the folder of a config the project; without a config, the project is found when it is first needed. */
export const openProject = (configFile: string | undefined): void => {
  project = configFile === undefined ? undefined : toProject(configFile);
};

const getProject = (): Project => {
  project ??= findProject();
  return project;
};

export const getProjectRoot = (): string => getProject().root;

/** Returns the path of the project's postern.yaml: that of --config, or the nearest one. */
export const getConfigFile = (): string => getProject().configFile;

/** Reports whether a postern.yaml was found, or named by --config. */
export const hasConfig = (): boolean => getProject().hasConfig;

/** Reports whether the rules in functions/ belong to the project. Without a postern.yaml, they may be of any origin. */
export const hasOwnRules = (): boolean => isCheckout || hasConfig();
