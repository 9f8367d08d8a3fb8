import { readFile } from "node:fs/promises";
import { basename, dirname } from "node:path";
import { type Document, isMap, isNode, isSeq, LineCounter, parseDocument } from "yaml";
import type { SettingsMistake } from "#lib/settings.ts";
import { readManifestFiles } from "../apiserver/manifest-cluster.ts";
import { type BrokenRule, type CatalogueRule, readCatalogueWithBroken } from "../catalogue/registry.ts";
import { findRuleByNameOrPlugin } from "../catalogue/rule-names.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import type { ClusterConfig, PosternConfig } from "../config/config.ts";
import { resolveConfigPath } from "../config/connections.ts";
import type { ManifestFilesByConfigPath } from "../config/rules.ts";
import { validateConfig } from "../config/validation.ts";
import { listSharedEntryConflicts } from "../webhooks/groups.ts";

/** The checkout's rules, the rules that can't be loaded, and postern.yaml. */
export interface RulesAndConfig {
  catalogue: CatalogueRule[];
  broken: readonly BrokenRule[];
  config: PosternConfig;
}

/** Reads the rules and postern.yaml. */
export const readProject = async (configFile: string): Promise<RulesAndConfig> => {
  const { rules: catalogue, broken } = await readCatalogueWithBroken();
  return { catalogue, broken, config: await readConfig(configFile, catalogue, broken) };
};

/** Writes the errors of rules that can't be loaded to stderr; throws if one of these rules is needed. */
export const reportBroken = (
  broken: readonly BrokenRule[],
  isNeeded: (rule: string) => boolean,
  exitCode?: number,
): void => {
  const [needed, others] = [broken.filter(({ name }) => isNeeded(name)), broken.filter(({ name }) => !isNeeded(name))];
  for (const { sentence } of others) process.stderr.write(`${sentence}\n`);
  if (needed.length > 0) throw new Complaint(needed.map(({ sentence }) => sentence).join("\n"), exitCode);
};

/** Reports whether postern.yaml names a rule for any cluster. Such a rule has a function, even if its mode is off. */
export const createRuleConfiguredPredicate =
  ({ clusters }: PosternConfig) =>
  (rule: string): boolean =>
    [...clusters.values()].some(({ rules }) => rules.has(rule));

/** Returns a function that reports whether a rule is turned on in this cluster. */
export const createRuleEnabledPredicate =
  ({ rules }: ClusterConfig) =>
  (rule: string): boolean =>
    (rules.get(rule)?.mode ?? "off") !== "off";

/** Throws one Complaint with all mistakes and their lines. Settings of rules that can't be loaded aren't read. */
export const readConfig = async (
  file: string,
  catalogue: CatalogueRule[],
  broken: readonly BrokenRule[] = [],
): Promise<PosternConfig> => {
  const name = basename(file);
  const text = await readFile(file, "utf8").catch((error) => {
    throw new Complaint(`${name} can't be read: ${toSentence(error)}`);
  });
  const found = listSettingPaths(text, catalogue).map(async (place) => {
    const files = await readManifestFiles(resolveConfigPath(place, dirname(file))).catch(toSentence);
    return [place, files] as const;
  });
  return parseConfig(text, catalogue, name, new Map(await Promise.all(found)), broken);
};

/** Returns the manifest files and folders in postern.yaml, for settings of these rules and for manifest clusters. */
export const listConfigManifestPaths = async (file: string, catalogue: CatalogueRule[]): Promise<string[]> => {
  const text = await readFile(file, "utf8");
  const { clusters } = Object(parseDocument(text, { prettyErrors: false, logLevel: "silent" }).toJS());
  const standing = Object.values(Object(clusters)).map((cluster) => Object(Object(cluster).connect).manifests);
  const all = [...listSettingPaths(text, catalogue), ...standing.filter((path) => typeof path === "string")];
  return [...new Set(all.map((place) => resolveConfigPath(place, dirname(file))))];
};

/** Returns the paths of manifests in the settings of these rules. Ignores mistakes, which parseConfig reports. */
const listSettingPaths = (text: string, catalogue: CatalogueRule[]): string[] => {
  const { rules, clusters } = Object(parseDocument(text, { prettyErrors: false, logLevel: "silent" }).toJS());
  const all = [rules, ...Object.values(Object(clusters)).map((cluster) => Object(cluster).rules)];
  const settings = catalogue.flatMap(({ name, rule }) =>
    Object.keys(rule.manifests ?? {}).flatMap((key) =>
      all
        .flatMap((section) => Object.entries(Object(section)))
        .map(([ruleText, config]) =>
          findRuleByNameOrPlugin(ruleText, [name]) ? Object(Object(config).settings)[key] : undefined,
        ),
    ),
  );
  return [...new Set(settings.flat().filter((setting) => typeof setting === "string"))];
};

export const parseConfig = (
  text: string,
  catalogue: CatalogueRule[],
  name = "postern.yaml",
  places: ManifestFilesByConfigPath = new Map(),
  broken: readonly BrokenRule[] = [],
): PosternConfig => {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false });
  const [fault] = document.errors;
  if (fault) throw new Complaint(`${name}:${lines.linePos(fault.pos[0]).line} is no YAML: ${fault.message}`);
  const value = toPlainValue(document, name);
  // An interrupted save leaves an empty postern.yaml, which must not turn all rules off.
  if (value === null)
    throw new Complaint(`${name} is empty; it must name the rules that are on, or say "rules: {}" if none is`);
  const { config, mistakes } = validateConfig(value, catalogue, places, broken);
  // Groups in postern.yaml are checked only if each rule's section is valid by itself.
  const found = mistakes.length > 0 ? mistakes : findGroupMistakes(config);
  if (found.length === 0) return config;
  throw new Complaint(
    found
      .map((mistake) => ({ ...mistake, offset: findOffset(mistake.path, document) }))
      .sort((left, right) => left.offset - right.offset)
      .map(({ path, sentence, offset }) => {
        const place = `${name}:${lines.linePos(offset).line}`;
        return [place, ...(path.length > 0 ? [path.join(".")] : []), sentence].join(" ");
      })
      .join("\n"),
  );
};

const findGroupMistakes = ({ clusters, groups }: PosternConfig): SettingsMistake[] =>
  groups.flatMap((group) => {
    const all = [...clusters.values()];
    const unnamed = group.members.filter(({ name }) => !all.some(({ rules }) => rules.has(name)));
    const sentences = [
      ...unnamed.map(({ name }) => `has ${name}, which is not named under rules`),
      ...new Set(all.flatMap((cluster) => listSharedEntryConflicts(group, cluster))),
    ];
    return sentences.map((sentence) => ({ path: ["groups", group.name], sentence }));
  });

/**
 * Returns the character offset of a path in the YAML of postern.yaml, or of the path's nearest parent that exists.
 */
const findOffset = (path: SettingsMistake["path"], { contents }: Document): number => {
  let node: unknown = contents;
  let offset = 0;
  const startOf = (place: unknown) => (isNode(place) ? (place.range?.[0] ?? offset) : offset);
  for (const key of path) {
    if (isSeq(node)) {
      node = node.items[Number(key)];
      offset = startOf(node);
      continue;
    }
    const pair = isMap(node) ? node.items.find((item) => String(item.key) === String(key)) : undefined;
    if (pair === undefined) break;
    offset = startOf(pair.key);
    node = pair.value;
  }
  return offset;
};

/** Returns a YAML document as a plain value; throws a Complaint if an alias is undefined or expands to too much. */
const toPlainValue = (document: Document, name: string): unknown => {
  try {
    return document.toJS();
  } catch (error) {
    throw new Complaint(`${name} is no YAML: ${toSentence(error)}`);
  }
};
