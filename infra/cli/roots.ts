import { existsSync } from "node:fs";
import { dirname, extname, join, relative, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { toOneLine } from "./terminal.ts";

/** The extension of Postern's own modules: `.ts` in a checkout, `.js` in the installed package. */
export const moduleExtension = extname(import.meta.url);

/** Whether Postern runs from a checkout of its repository, not from the installed package. */
export const isCheckout = moduleExtension === ".ts";

/** The folder of Postern's own files, with a separator at the end: a checkout, or the installed package. */
export const packageRoot = fileURLToPath(new URL("../../", import.meta.url));

/** The project that a command works in. Besides Postern's own code, code is loaded only from the project's folder. */
interface Project {
  /** The folder of postern.yaml, functions/ and what commands write, with a separator at the end. */
  root: string;
  /** The path of postern.yaml. --config can name a file of another name. */
  configFile: string;
  /** False if no postern.yaml was found. */
  hasConfig: boolean;
}

/**
 * Returns the project of a postern.yaml. Its root is the folder of the file or, if Postern runs from a checkout, the
 * checkout. Like `packageRoot`, the root ends in a separator.
 */
const toProject = (configFile: string): Project => {
  const root = isCheckout ? packageRoot : join(dirname(resolve(configFile)), sep);
  return { root, configFile, hasConfig: true };
};

/** Returns the path of the file with this name in a folder, or in the nearest parent folder that has such a file. */
export const findNearestFile = (folder: string, name: string): string | undefined => {
  const file = join(folder, name);
  if (existsSync(file)) return file;
  return folder === dirname(folder) ? undefined : findNearestFile(dirname(folder), name);
};

/**
 * In a checkout of Postern, returns the project of the postern.yaml in its root. Elsewhere, returns the project of the
 * nearest postern.yaml in the working directory and its parent folders, or else of the postern.yaml beside the
 * node_modules in which the package is installed, and prints its path if it is not in the working directory. If there
 * is no postern.yaml, returns a project without one.
 */
const findProject = (): Project => {
  const [installedIn = ""] = packageRoot.split(`${sep}node_modules${sep}`);
  const besidePackage = join(isCheckout ? packageRoot : installedIn, "postern.yaml");
  const nearest = isCheckout ? undefined : findNearestFile(process.cwd(), "postern.yaml");
  const configFile = nearest ?? (existsSync(besidePackage) ? besidePackage : undefined);
  const hereFile = resolve("postern.yaml");
  if (configFile === undefined) return { ...toProject(hereFile), hasConfig: false };
  if (configFile !== hereFile && !isCheckout)
    process.stderr.write(`uses ${toOneLine(relative("", configFile))}: this folder has no postern.yaml\n`);
  return toProject(configFile);
};

/** The environment variable with which `postern test` passes the path of postern.yaml to the processes it starts. */
export const configVariable = "POSTERN_CONFIG";

const { [configVariable]: inheritedConfigFile } = process.env;
let project = inheritedConfigFile === undefined ? undefined : toProject(inheritedConfigFile);

/** Makes the folder of a postern.yaml the project. Without a file, the first use of the project searches for one. */
export const openProject = (configFile: string | undefined): void => {
  project = configFile === undefined ? undefined : toProject(configFile);
};

const getProject = (): Project => {
  project ??= findProject();
  return project;
};

export const getProjectRoot = (): string => getProject().root;

/** Returns the path of the project's postern.yaml: the value of --config, or the nearest postern.yaml. */
export const getConfigFile = (): string => getProject().configFile;

/** Reports whether the project has a postern.yaml: one was found, or --config names one. */
export const hasConfig = (): boolean => getProject().hasConfig;

/** Reports whether the rules in functions/ belong to the project. Without a postern.yaml, they can be any files. */
export const hasOwnRules = (): boolean => isCheckout || hasConfig();
