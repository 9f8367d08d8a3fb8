import { existsSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, isAbsolute, join, relative, sep } from "node:path";
import { toMap } from "#lib/json.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { getProjectRoot, packageRoot } from "../cli/roots.ts";

/** A folder with one folder for each rule: the project's functions/, or a catalogue. */
export interface RuleSource {
  /** `functions/`, or the npm specifier of a catalogue in postern.yaml. */
  name: string;
  folder: string;
}

/** Where a rule is. */
export interface RuleFolder {
  /** The name of a rule's folder, which is the rule's name. */
  name: string;
  folder: string;
  /** The folder in messages: its path from the project's folder, such as `functions/limit-ranger`. */
  place: string;
  /** The file with the rule: rule.ts or rule.js. */
  file: string;
  /** The name of the rule's source. */
  source: string;
}

/** The folder of the project's own rules; it need not exist. */
export const getFunctionsFolder = (): string => join(getProjectRoot(), "functions/");

/** The name of the source that is the project's functions/. */
export const projectSourceName = "functions/";

export const getProjectSource = (): RuleSource => ({ name: projectSourceName, folder: getFunctionsFolder() });

/** The catalogue that comes with Postern, the only one by default. It is always that of the running version. */
export const posternCatalogue = "postern/catalogue";

/** Returns the folder of a file in messages, with slashes. */
const formatPlace = (folder: string): string => relative(getProjectRoot(), folder).split(sep).join("/");

/** Returns the path of one of Postern's pages in messages: `docs/NAME`, or in a project below node_modules. */
export const formatPage = (name: string): string => formatPlace(join(packageRoot, "docs", name));

/** Returns the rules' folders in the order of names. A rule replaces those of the same name in earlier sources. */
export const listRuleFolders = async (sources: readonly RuleSource[]): Promise<RuleFolder[]> => {
  const all = await Promise.all(sources.map(listFoldersOfSource));
  const byName = new Map(all.flat().map((found) => [found.name, found]));
  return [...byName.values()].sort((left, right) => (left.name < right.name ? -1 : 1));
};

const listFoldersOfSource = async ({ name: source, folder }: RuleSource): Promise<RuleFolder[]> => {
  const entries = await readdir(folder, { withFileTypes: true }).catch((error) => {
    if (error.code === "ENOENT" && source === projectSourceName) return [];
    throw error;
  });
  return entries
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => toRuleFolder(join(folder, name), name, source));
};

export const toRuleFolder = (folder: string, name: string, source = projectSourceName): RuleFolder => {
  // A package may have the source, too, and Node doesn't run TypeScript in node_modules.
  const files = source === projectSourceName ? ["rule.ts", "rule.js"] : ["rule.js", "rule.ts"];
  const file = files.find((candidate) => existsSync(join(folder, candidate))) ?? "rule.ts";
  return { name, folder, place: formatPlace(folder), file, source };
};

/** Returns a catalogue by its npm specifier, as the project's own modules would import it. */
export const resolveCatalogue = async (specifier: string): Promise<RuleSource> => {
  if (specifier === posternCatalogue) return { name: specifier, folder: join(packageRoot, "functions/") };
  const folder = dirname(resolveFile(specifier));
  const source = { name: specifier, folder };
  if ((await listFoldersOfSource(source)).length === 0)
    throw new Complaint(`"${specifier}" has no rules: ${formatPlace(folder)} has no folders`);
  return source;
};

const resolveFile = (specifier: string): string => {
  const [name = specifier] = /^(@[^/]+\/)?[^/]+/.exec(specifier) ?? [];
  try {
    const file = createRequire(join(getProjectRoot(), "package.json")).resolve(specifier);
    if (isAbsolute(file)) return file;
  } catch (error) {
    const { code } = toMap(error);
    if (code === "ERR_PACKAGE_PATH_NOT_EXPORTED")
      throw new Complaint(`"${specifier}" can't be found: the exports of ${name} don't have it`);
    if (code !== "MODULE_NOT_FOUND") throw new Complaint(`"${specifier}" can't be found: ${toSentence(error)}`);
  }
  throw new Complaint(`"${specifier}" can't be found; the project must have the package ${name} installed`);
};
