// This file finds and loads the rules of a project. It reads the names of catalogues and rules in postern.yaml, before
// the file is validated.
import { readFile } from "node:fs/promises";
import { basename } from "node:path";
import { toList, toMap } from "#lib/json.ts";
import type { SettingsMistake } from "#lib/settings.ts";
import { type BrokenRule, type CatalogueRule, loadRules } from "../catalogue/registry.ts";
import { findRuleByNameOrPlugin } from "../catalogue/rule-names.ts";
import {
  getProjectSource,
  listRuleFolders,
  posternCatalogue,
  type RuleSource,
  resolveCatalogue,
} from "../catalogue/sources.ts";
import { Complaint, requireComplaint, toSentence } from "../cli/complaint.ts";
import { getConfigFile, hasConfig, hasOwnRules } from "../cli/roots.ts";
import type { YamlDocument } from "../cli/yaml-document.ts";
import { parseConfigDocument } from "./config-document.ts";

/** The rules that a command needs. */
export interface ProjectRules {
  /** The loaded rules, in the order of the compiled-in plugins. */
  catalogue: CatalogueRule[];
  /** Rules that could not be loaded. */
  broken: readonly BrokenRule[];
  /** The names of all rules, whether or not they are loaded. */
  names: readonly string[];
}

/** The names of rules to load in addition to those in postern.yaml, or "all". */
export type WantedRules = readonly string[] | "all";

export const readConfigText = (file: string): Promise<string> =>
  readFile(file, "utf8").catch((error) => {
    if (error.code === "ENOENT") requireConfig(); // throws if there is no postern.yaml at all
    throw new Complaint(`${basename(file)} can't be read: ${toSentence(error)}`);
  });

/** Throws a Complaint that says how to begin if there is no postern.yaml. */
export const requireConfig = (): void => {
  if (hasConfig()) return;
  throw new Complaint(
    'there is no postern.yaml in this folder or above it: "postern new NAME" writes one with a rule of your own, and "postern rules" lists the rules that it can turn on, for instance by the line rules: { always-pull-images: }',
  );
};

/** Reads the project's postern.yaml. Without one, no rule is on. */
export const readConfigTextIfAny = async (): Promise<string> =>
  hasConfig() ? readConfigText(getConfigFile()) : "rules: {}";

/** Loads the rules that a postern.yaml names, and the rules in `wanted`. */
export const loadProjectRules = async (document: YamlDocument, wanted: WantedRules): Promise<ProjectRules> => {
  const { sources, mistakes } = await listSources(document.value);
  document.complain(mistakes);
  const folders = await listRuleFolders(sources);
  const names = folders.map(({ name }) => name);
  const texts = wanted === "all" ? names : [...wanted, ...listRuleTexts(document.value)];
  const chosen = new Set(texts.map((text) => findRuleByNameOrPlugin(text, names)));
  const { rules, broken } = await loadRules(folders.filter(({ name }) => chosen.has(name)));
  return { catalogue: rules, broken, names };
};

/** Loads all rules of the project. Its postern.yaml is read only for the catalogues, and may be missing. */
export const readAllRules = async (): Promise<ProjectRules> => loadProjectRules(await readConfigDocumentIfAny(), "all");

/** Returns the names of all rules that can be found, even if postern.yaml or a catalogue can't be read. */
export const readRuleNames = async (): Promise<string[]> => {
  const value = await readConfigDocumentIfAny().then(
    (document) => document.value,
    () => undefined,
  );
  const { sources } = await listSources(value);
  return (await listRuleFolders(sources)).map(({ name }) => name);
};

const readConfigDocumentIfAny = async (): Promise<YamlDocument> =>
  parseConfigDocument(await readConfigTextIfAny(), basename(getConfigFile()));

/**
 * Returns the catalogues in postern.yaml and the project's functions/. `catalogues` may have a wrong type: it is
 * checked later.
 */
const listSources = async (value: unknown): Promise<{ sources: RuleSource[]; mistakes: SettingsMistake[] }> => {
  const { catalogues } = toMap(value);
  const specifiers = Array.isArray(catalogues) ? catalogues : [posternCatalogue];
  const mistakes: SettingsMistake[] = [];
  const found = await Promise.all(
    specifiers.map(async (specifier, index) => {
      if (typeof specifier !== "string") return [];
      return resolveCatalogue(specifier).catch((error) => {
        mistakes.push({ path: ["catalogues", index], sentence: requireComplaint(error).message });
        return [];
      });
    }),
  );
  return { sources: [...found.flat(), ...(hasOwnRules() ? [getProjectSource()] : [])], mistakes };
};

/** Returns the texts in a postern.yaml that name rules. Values of wrong types are ignored: they are checked later. */
const listRuleTexts = (value: unknown): string[] => {
  const { rules, clusters, groups } = toMap(value);
  const sections = [rules, ...Object.values(toMap(clusters)).map((cluster) => toMap(cluster).rules)];
  const members = Object.values(toMap(groups)).flatMap(toList);
  return [...sections.flatMap((section) => Object.keys(toMap(section))), ...members.map(String)];
};
