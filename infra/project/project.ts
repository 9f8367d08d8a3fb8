import { basename, dirname, relative } from "node:path";
import { isText, toMap } from "#lib/json.ts";
import type { SettingsMistake } from "#lib/settings.ts";
import type { BrokenRule, CatalogueRule } from "../catalogue/registry.ts";
import { findRuleByNameOrPlugin } from "../catalogue/rule-names.ts";
import { writeNote } from "../cli/command.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { getConfigFile } from "../cli/roots.ts";
import type { YamlDocument } from "../cli/yaml-document.ts";
import type { ClusterConfig, PosternConfig } from "../config/config.ts";
import { resolveConfigPath } from "../config/connections.ts";
import { listFilesOfKubeconfig, readServiceKubeconfig } from "../config/kubeconfig.ts";
import { type CatalogueAndManifestFiles, getSetting } from "../config/rule-configs.ts";
import { validateConfig } from "../config/validation.ts";
import { readManifestsStrictly } from "../manifests/input.ts";
import { listSharedEntryConflicts } from "../webhooks/groups.ts";
import { parseConfigDocument } from "./config-document.ts";
import {
  loadProjectRules,
  type ProjectRules,
  readConfigText,
  readConfigTextIfAny,
  type WantedRules,
} from "./project-rules.ts";

/** Reads postern.yaml. Loads the rules in it and in `wanted`, but not all rules, which would take long. */
export const readProject = async (
  file: string,
  wanted: WantedRules = [],
): Promise<ProjectRules & { config: PosternConfig }> => readProjectText(await readConfigText(file), file, wanted);

/** Reads the project for a command that also works without a postern.yaml. */
export const readProjectIfAny = async (wanted: WantedRules): Promise<ProjectRules & { config: PosternConfig }> =>
  readProjectText(await readConfigTextIfAny(), getConfigFile(), wanted);

/** Loads the rules that a text of postern.yaml turns on, and checks the text against them. */
const readProjectText = async (
  text: string,
  file: string,
  wanted: WantedRules,
): Promise<ProjectRules & { config: PosternConfig }> => {
  const document = parseConfigDocument(text, basename(file));
  const rules = await loadProjectRules(document, wanted);
  return { ...rules, config: await readConfigDocument(document, file, rules.catalogue, rules.names) };
};

/** Reports rules that can't be loaded. Throws if one of them is needed. */
export const reportBroken = (
  broken: readonly BrokenRule[],
  isNeeded: (rule: string) => boolean,
  exitCode?: number,
): void => {
  const [needed, others] = [broken.filter(({ name }) => isNeeded(name)), broken.filter(({ name }) => !isNeeded(name))];
  for (const { sentence } of others) writeNote(sentence);
  if (needed.length > 0) throw new Complaint(needed.map(({ sentence }) => sentence).join("\n"), exitCode);
};

/** Returns a function that reports whether postern.yaml names a rule for any cluster, also with the mode off. */
export const createRuleConfiguredPredicate =
  ({ clusters }: PosternConfig) =>
  (rule: string): boolean =>
    [...clusters.values()].some(({ rules }) => rules.has(rule));

/** Returns a function that reports whether a rule is turned on in this cluster. */
export const createRuleEnabledPredicate =
  ({ rules }: ClusterConfig) =>
  (rule: string): boolean =>
    (rules.get(rule)?.mode ?? "off") !== "off";

/**
 * Reads and validates postern.yaml. Throws one Complaint with all mistakes and their lines. `ruleNames` are the names
 * of all rules, if `catalogue` has only some of them.
 */
export const readConfig = async (
  file: string,
  catalogue: CatalogueRule[],
  ruleNames?: readonly string[],
): Promise<PosternConfig> =>
  readConfigDocument(parseConfigDocument(await readConfigText(file), basename(file)), file, catalogue, ruleNames);

/**
 * Reads the files that a postern.yaml names, and validates it. Paths in it are relative to the folder of `file`.
 * `ruleNames` are the names of all rules, if `catalogue` has only some of them.
 */
export const readConfigDocument = async (
  document: YamlDocument,
  file: string,
  catalogue: CatalogueRule[],
  ruleNames?: readonly string[],
): Promise<PosternConfig> => {
  const folder = dirname(file);
  const readAll = async <T>(member: SettingFileMember, read: (path: string) => Promise<T>) =>
    new Map(
      await Promise.all(
        listSettingPaths(document.value, catalogue, member).map(
          async (path) => [path, await read(resolveConfigPath(path, folder)).catch(toSentence)] as const,
        ),
      ),
    );
  const files = {
    folder,
    manifestsByPath: await readAll("manifests", (path) =>
      readManifestsStrictly([path], (file) => relative(folder, file)),
    ),
    serviceSettingsByPath: await readAll("kubeconfigs", readServiceKubeconfig),
  };
  return validateDocument(document, catalogue, files, ruleNames);
};

/** The files and folders that a postern.yaml names. */
interface ConfigPaths {
  /** The files and folders with manifests. */
  manifests: string[];
  /** All files and folders, also those that kubeconfigs name. */
  paths: string[];
  /** False if a rule can't be loaded: the files in its settings are then not known. */
  isComplete: boolean;
}

/** Returns the files and folders that postern.yaml names for settings of rules and for clusters. */
export const listConfigPaths = async (file: string): Promise<ConfigPaths> => {
  const document = parseConfigDocument(await readConfigText(file), basename(file));
  const { catalogue, broken } = await loadProjectRules(document, []);
  const { value } = document;
  const connects = Object.values(toMap(toMap(value).clusters)).map((cluster) => toMap(toMap(cluster).connect));
  const resolveAll = (places: unknown[]) =>
    places.filter(isText).map((place) => resolveConfigPath(place, dirname(file)));
  const kubeconfigs = resolveAll([
    ...listSettingPaths(value, catalogue, "kubeconfigs"),
    ...connects.map(({ kubeconfig }) => kubeconfig),
  ]);
  const manifests = resolveAll([
    ...listSettingPaths(value, catalogue, "manifests"),
    ...connects.map(({ manifests }) => manifests),
  ]);
  const authorities = resolveAll(connects.map(({ ca }) => ca));
  const credentials = (await Promise.all(kubeconfigs.map(listFilesOfKubeconfig))).flat();
  const paths = [...new Set([...kubeconfigs, ...manifests, ...authorities, ...credentials])];
  return { manifests: [...new Set(manifests)], paths, isComplete: broken.length === 0 };
};

/** The members of a rule whose keys are settings that name files. */
type SettingFileMember = "manifests" | "kubeconfigs";

/**
 * Returns the paths of files in the settings of rules. The keys of a rule's `member` are the names of such settings.
 * Ignores values of wrong types, which are checked later.
 */
const listSettingPaths = (value: unknown, catalogue: CatalogueRule[], member: SettingFileMember): string[] => {
  const { rules, clusters } = toMap(value);
  const sections = [rules, ...Object.values(toMap(clusters)).map((cluster) => toMap(cluster).rules)];
  const settings = catalogue.flatMap(({ name, rule }) =>
    Object.keys(rule[member] ?? {}).flatMap((settingName) =>
      sections
        .flatMap((section) => Object.entries(toMap(section)))
        .map(([ruleText, config]) =>
          findRuleByNameOrPlugin(ruleText, [name]) ? getSetting(toMap(config).settings, settingName) : undefined,
        ),
    ),
  );
  return [...new Set(settings.flat().filter((setting) => typeof setting === "string"))];
};

export const parseConfig = (text: string, catalogue: CatalogueRule[], ruleNames?: readonly string[]): PosternConfig =>
  validateDocument(parseConfigDocument(text, "postern.yaml"), catalogue, noFiles, ruleNames);
const noFiles = { folder: "", manifestsByPath: new Map(), serviceSettingsByPath: new Map() };

/** Returns the checked content of postern.yaml. Mistakes are reported with their lines. */
const validateDocument = (
  document: YamlDocument,
  catalogue: CatalogueRule[],
  files: Omit<CatalogueAndManifestFiles, "catalogue" | "names" | "findPlace">,
  ruleNames: readonly string[] = catalogue.map(({ name }) => name),
): PosternConfig => {
  const { config, mistakes } = validateConfig(document.value, {
    catalogue,
    names: ruleNames,
    findPlace: (path) => `${document.name}:${document.findLine(path)}`,
    ...files,
  });
  // Groups are checked only if postern.yaml has no other mistakes.
  document.complain(mistakes.length > 0 ? mistakes : findGroupMistakes(config));
  return config;
};

/** Finds groups with rules that no cluster names, or that can't share a webhook entry. */
const findGroupMistakes = ({ clusters, groups }: PosternConfig): SettingsMistake[] =>
  groups.flatMap((group) => {
    const allClusters = [...clusters.values()];
    const unnamed = group.members.filter(({ name }) => !allClusters.some(({ rules }) => rules.has(name)));
    const sentences = [
      ...unnamed.map(({ name }) => `has ${name}, which is not named under rules`),
      ...new Set(allClusters.flatMap((cluster) => listSharedEntryConflicts(group, cluster))),
    ];
    return sentences.map((sentence) => ({ path: ["groups", group.name], sentence }));
  });
