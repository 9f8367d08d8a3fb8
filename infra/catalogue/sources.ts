import { existsSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, isAbsolute, join, relative, sep } from "node:path";
import { toMap } from "#lib/json.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { getProjectRoot, packageRoot } from "../cli/roots.ts";

/** A folder that has one folder for each rule: the project's functions/, or a catalogue. */
export interface RuleSource {
  /** `functions/`, or the npm specifier of a catalogue in postern.yaml. */
  name: string;
  folder: string;
}

/** Where a rule is. */
export interface RuleFolder {
  /** The name of the rule and of its folder. */
  name: string;
  folder: string;
  /** The folder's path for messages, relative to the project's folder, such as `functions/limit-ranger`. */
  place: string;
  /** The file with the rule: rule.ts or rule.js. */
  file: string;
  /** The name of the source: `functions/` for the project's own rules, or a catalogue such as `postern/catalogue`. */
  source: string;
}

/** Returns the folder of the project's own rules. A project may be without it. */
export const getFunctionsFolder = (): string => join(getProjectRoot(), "functions/");

/** The name of the source that is the project's functions/. */
export const projectSourceName = "functions/";

export const getProjectSource = (): RuleSource => ({ name: projectSourceName, folder: getFunctionsFolder() });

/** The catalogue that is part of Postern. By default, a project has only this one. */
export const posternCatalogue = "postern/catalogue";

/** Returns a path for messages: relative to the project's folder, with slashes. */
const formatPlace = (folder: string): string => relative(getProjectRoot(), folder).split(sep).join("/");

/** Returns the path of one of Postern's pages for messages, for instance `node_modules/postern/docs/NAME`. */
export const formatPage = (name: string): string => formatPlace(join(packageRoot, "docs", name));

/**
 * Returns the folders of rules in the order of names. If two sources have a rule of the same name, the later source
 * counts.
 */
export const listRuleFolders = async (sources: readonly RuleSource[]): Promise<RuleFolder[]> => {
  const all = await Promise.all(sources.map(listFoldersOfSource));
  const byName = new Map(all.flat().map((found) => [found.name, found]));
  return [...byName.values()].sort((left, right) => (left.name < right.name ? -1 : 1));
};

/** Returns the folders of rules in a package or project. A project may have no such folder. */
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
  // Node doesn't run TypeScript in node_modules, so rule.js comes first there, also if the package has rule.ts, too.
  const files = source === projectSourceName ? ["rule.ts", "rule.js"] : ["rule.js", "rule.ts"];
  const file = files.find((candidate) => existsSync(join(folder, candidate))) ?? "rule.ts";
  return { name, folder, place: formatPlace(folder), file, source };
};

/** Finds a catalogue by its npm specifier, as if a module of the project imported it. */
export const resolveCatalogue = async (specifier: string): Promise<RuleSource> => {
  if (specifier === posternCatalogue) return { name: specifier, folder: join(packageRoot, "functions/") };
  const folder = dirname(resolveFile(specifier));
  const source = { name: specifier, folder };
  if ((await listFoldersOfSource(source)).length === 0)
    throw new Complaint(`"${specifier}" has no rules: ${formatPlace(folder)} has no folders`);
  return source;
};

/** Returns the file that a specifier leads to from the project's folder. */
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
