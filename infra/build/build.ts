// Start reading infra/build here. `buildFunctions` makes a bundle and a zip of each rule in postern.yaml (bundle.ts,
// zip.ts), and writes the files that serverless.yml includes (deployment.ts). It calls neither AWS nor clusters.
import { readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type CatalogueRule, hasNeed } from "../catalogue/registry.ts";
import { writeNote } from "../cli/command.ts";
import { Complaint } from "../cli/complaint.ts";
import { getConfigFile, getProjectRoot } from "../cli/roots.ts";
import type { PosternConfig } from "../config/config.ts";
import { listRulesAskingCluster, readClusterConnections } from "../config/connections.ts";
import { listRecordingBucketSettings } from "../config/record-section.ts";
import { requireValidRules } from "../project/rule-mistakes.ts";
import { buildEndpointConfig, listServedRulesAndGroups } from "../project/served.ts";
import { findLongestTimeoutSeconds } from "../webhooks/entry.ts";
import { bundleRule, type RuleBundle } from "./bundle.ts";
import { readCueRuntimeFiles } from "./cue.ts";
import { writeServerlessIncludes } from "./deployment.ts";
import { getInflatedContents } from "./zip.ts";

export const getDistFolder = (): string => join(getProjectRoot(), "dist/");

interface BuildResult {
  bundles: RuleBundle[];
  /**
   * The number of resources in the smaller of the two stacks, one for each endpoint type. If this stack is too large,
   * neither endpoint type can be deployed.
   */
  resources: number;
  notes: string[];
}

/** Checks all rules and groups that are on for mistakes, and builds their bundles and what serverless.yml includes. */
export const buildFunctions = async (
  config: PosternConfig,
  catalogue: CatalogueRule[],
  file: string,
  publicKeys: string,
  stage?: string,
): Promise<BuildResult> => {
  const served = listServedRulesAndGroups(config, catalogue);
  if (served.length === 0) throw new Complaint("no rule is on; postern.yaml says which are");
  const ruleWarnings = await requireValidRules(listMembers(served), file);
  const { connections, faults, notes } = await readClusterConnections(config, catalogue, file, "aws");
  if (faults.length > 0) throw new Complaint(faults.join("\n"));
  const clusters = [...config.clusters.values()];
  const distFolder = getDistFolder();
  const bundles = await Promise.all(
    served.map(async (listed) => {
      const members = listed.members ?? [listed];
      // The function's timeout must be at least as long as the longest timeout of its rules in any cluster.
      const timeouts = clusters.flatMap(({ rules }) =>
        members.map(({ name, rule }) => findLongestTimeoutSeconds(rule, rules.get(name))),
      );
      // A group's function gets the largest numbers of its members. A rule that is off needs no warm environments.
      const configs = clusters.flatMap(({ rules }) => members.flatMap(({ name }) => rules.get(name) ?? []));
      const reserved = configs.flatMap((ruleConfig) => ruleConfig.reserved ?? []);
      const warm = configs.flatMap((ruleConfig) => (ruleConfig.mode === "off" ? [] : (ruleConfig.warm ?? [])));
      // A function gets the connections only of clusters that its rules read, and its role may read only their tokens.
      const neededConnections = [...connections].filter(
        ([name]) => listRulesAskingCluster(members, config.clusters.get(name)).length > 0,
      );
      const bundle = await bundleRule(listed, buildEndpointConfig(config, listed), distFolder, {
        connections: Object.fromEntries(neededConnections),
        recordingBuckets: listRecordingBucketSettings(config, listed),
      });
      return {
        ...bundle,
        timeoutSeconds: Math.max(...timeouts),
        ...(reserved.length > 0 && { reserved: Math.max(...reserved) }),
        ...(warm.length > 0 && { warm: Math.max(...warm) }),
      };
    }),
  );
  await deleteStaleBundles(
    distFolder,
    bundles.map(({ name }) => name),
  );
  const resources = await writeServerlessIncludes(bundles, publicKeys, distFolder, stage);
  return { bundles, resources, notes: [...ruleWarnings, ...notes] };
};

/**
 * Builds bundles for direct invocation into `outDir`. Each event has the settings and the recorded answers of services,
 * so these bundles need no connections and no ledger, but they may need CUE. `names` selects rules, also rules that are
 * off. Throws if a rule has mistakes, such as a wrong definition, and prints the warnings.
 */
export const buildDirectInvocationBundles = async (
  config: PosternConfig,
  catalogue: CatalogueRule[],
  outDir: string,
  names: readonly string[],
): Promise<RuleBundle[]> => {
  const served = listServedRulesAndGroups(config, catalogue);
  const isWanted = ({ name, members }: CatalogueRule) =>
    names.includes(name) || members?.some((member) => names.includes(member.name));
  const others = catalogue.filter((listed) => names.includes(listed.name) && !served.includes(listed));
  const wanted = names.length === 0 ? served : [...served.filter(isWanted), ...others];
  for (const warning of await requireValidRules(listMembers(wanted), getConfigFile())) writeNote(warning);
  return Promise.all(
    wanted.map(async (listed) => {
      const built = await bundleRule(listed, buildEndpointConfig(config, listed), outDir, {
        budgetBytes: Number.POSITIVE_INFINITY,
      });
      if (hasNeed(listed, "cue"))
        for (const [file, content] of Object.entries(await readCueRuntimeFiles()))
          await writeFile(join(outDir, listed.name, file), getInflatedContents(content));
      return built;
    }),
  );
};

/** Returns the rules. A group is replaced by its members. */
const listMembers = (served: readonly CatalogueRule[]): CatalogueRule[] =>
  served.flatMap((listed) => listed.members ?? [listed]);

/** Deletes the bundles and zips of rules that an earlier build has made and this build has not. */
const deleteStaleBundles = async (distFolder: string, names: string[]) => {
  const kept = [...names, "packages"];
  for (const entry of await readdir(distFolder, { withFileTypes: true }))
    if ((entry.isDirectory() || entry.name.endsWith(".zip")) && !kept.includes(entry.name.replace(/\.zip$/, "")))
      await rm(`${distFolder}${entry.name}`, { recursive: true });
};
