import { isDeepStrictEqual } from "node:util";
import type { EndpointConfig } from "#lib/core/endpoint.ts";
import { getProjectSource, listRuleFolders } from "../catalogue/sources.ts";
import { Complaint } from "../cli/complaint.ts";
import { compareManifests } from "../clusters/drift.ts";
import { compareSetups } from "../project/setup-differences.ts";
import { readRuleConfigs } from "../replay/bundle-side.ts";
import type { ReplayFoldersAndProcesses } from "../replay/scratch.ts";
import type { TestResult } from "../testing/results.ts";
import { buildEntries, buildProject, listCatalogueNames, type PosternVersion, runCases } from "./versions.ts";

/** The installed version and the new one. */
export type VersionPair = readonly [PosternVersion, PosternVersion];

/** What the new version changes about a project, except its answers to recorded reviews. */
export interface UpgradeDifferences {
  from: string;
  to: string;
  /** Why the new version can't build the project; absent if it can. */
  refusal?: string;
  /** Rules of only one version's catalogue. `replaced`: new ones that the project's rule of the same name replaces. */
  catalogue: { added: string[]; removed: string[]; replaced: string[] };
  settings: { rule: string; changes: string[] }[];
  entries: { cluster: string; differences: string[] }[];
  /** The cases of the project's rules whose results differ, with the result in the installed version as a text. */
  cases: { before: string; after: TestResult }[];
  /** The folders of both versions' bundles; absent if the new version can't build the project. */
  bundles?: [string, string];
}

/** Builds the project with both versions, and returns what differs. */
export const compareVersions = async (
  versions: VersionPair,
  clusters: readonly string[],
  scratch: ReplayFoldersAndProcesses,
): Promise<UpgradeDifferences> => {
  const [installed, wanted] = versions;
  const projectRules = (await listRuleFolders([getProjectSource()])).map(({ name }) => name);
  // The versions build one after the other, because each build uses several processors.
  const before = await buildProject(installed, scratch);
  if ("refusal" in before)
    throw new Complaint(
      `postern ${installed.version}, which is installed, can't build this project: ${before.refusal}`,
      3,
    );
  const after = await buildProject(wanted, scratch);
  const base = {
    from: installed.version,
    to: wanted.version,
    catalogue: await compareCatalogues(versions, projectRules),
    cases: projectRules.length > 0 ? await compareCases(versions, projectRules) : [],
  };
  if ("refusal" in after) return { ...base, refusal: after.refusal, settings: [], entries: [] };
  const bundles: [string, string] = [before.answer, after.answer];
  const entries = await Promise.all(
    clusters.map(async (cluster) => ({ cluster, differences: await compareEntries(versions, cluster) })),
  );
  return { ...base, settings: await compareSettings(bundles, clusters), entries, bundles };
};

/** Returns which rules the new version adds and removes, and which of the added ones the project's rules replace. */
const compareCatalogues = async ([installed, wanted]: VersionPair, projectRules: readonly string[]) => {
  const [before, after] = [await listCatalogueNames(installed), await listCatalogueNames(wanted)];
  const added = after.filter((name) => !before.includes(name));
  return {
    added: added.filter((name) => !projectRules.includes(name)),
    removed: before.filter((name) => !after.includes(name)),
    replaced: added.filter((name) => projectRules.includes(name)),
  };
};

/** Returns the settings of rules that differ between the configs of the two versions. */
const compareSettings = async ([before, after]: [string, string], clusters: readonly string[]) => {
  const [configs, newConfigs] = [await readRuleConfigs(before), await readRuleConfigs(after)];
  // Both versions built these configurations from the same postern.yaml.
  return [...configs].flatMap(([rule, config]) => {
    const changes = compareSetups(
      config as EndpointConfig,
      (newConfigs.get(rule) ?? config) as EndpointConfig,
      clusters,
    );
    return changes.length > 0 ? [{ rule, changes }] : [];
  });
};

/** Returns how the webhook entries of a cluster differ between the two versions. */
const compareEntries = async ([installed, wanted]: VersionPair, cluster: string): Promise<string[]> => {
  const [before, after] = [await buildEntries(installed, cluster), await buildEntries(wanted, cluster)];
  if ("answer" in before && "answer" in after)
    return compareManifests(before.answer, after.answer).map(({ sentence }) => sentence);
  if (isDeepStrictEqual(before, after)) return [];
  return [[before, installed] as const, [after, wanted] as const].flatMap(([entries, { version }]) =>
    "refusal" in entries ? [`postern ${version} makes no entries: ${entries.refusal}`] : [],
  );
};

/** Returns the tests of rules whose results differ between the two versions. */
const compareCases = async ([installed, wanted]: VersionPair, rules: readonly string[]) => {
  const [before, after] = [await runCases(installed, rules), await runCases(wanted, rules)];
  // A result without a rule is the result of a whole test file. Its name is a path, which differs between the versions.
  const getKey = ({ rule, name }: TestResult) => (rule === undefined ? "" : `${rule}: ${name}`);
  const oldResults = new Map(before.map((test) => [getKey(test), test.result]));
  return after.flatMap((test) => {
    // The new version may have more tests for every rule. A new test is a difference only if it fails.
    const oldResult = oldResults.get(getKey(test)) ?? (test.result === "passed" ? test.result : "absent");
    return oldResult === test.result ? [] : [{ before: oldResult, after: test }];
  });
};
