// Start here. buildFunctions makes a bundle and a zip of every rule that postern.yaml names (bundle.ts, zip.ts), and
// writes what serverless.yml includes (deployment.ts). Nothing here calls AWS or a
// cluster.
import { readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type CatalogueRule, hasNeed } from "../catalogue/registry.ts";
import { writeNote } from "../cli/command.ts";
import { Complaint } from "../cli/complaint.ts";
import { getConfigFile, getProjectRoot } from "../cli/roots.ts";
import type { PosternConfig } from "../config/config.ts";
import { listRulesAskingCluster, readClusterConnections } from "../config/connections.ts";
import { listRecordingBucketSettings } from "../config/record-section.ts";
import { requireRightRules } from "../project/rule-mistakes.ts";
import { buildEndpointConfig, listServedRulesAndGroups } from "../project/served.ts";
import { findLongestTimeoutSeconds } from "../webhooks/entry.ts";
import { bundleRule, type RuleBundle } from "./bundle.ts";
import { readCueRuntimeFiles } from "./cue.ts";
import { writeServerlessIncludes } from "./deployment.ts";
import { getInflatedContents } from "./zip.ts";

export const getDistFolder = (): string => join(getProjectRoot(), "dist/");

interface BuildResult {
  bundles: RuleBundle[];
  /** The number of resources in a stack of the endpoint type that has fewer. */
  resources: number;
  notes: string[];
}

export const buildFunctions = async (
  config: PosternConfig,
  catalogue: CatalogueRule[],
  file: string,
  publicKeys: string,
  stage?: string,
): Promise<BuildResult> => {
  const served = listServedRulesAndGroups(config, catalogue);
  if (served.length === 0) throw new Complaint("no rule is on; postern.yaml says which are");
  const warnings = await requireRightRules(listMembers(served), file);
  const { connections, faults, notes } = await readClusterConnections(config, catalogue, file, "aws");
  if (faults.length > 0) throw new Complaint(faults.join("\n"));
  const clusters = [...config.clusters.values()];
  const distFolder = getDistFolder();
  const bundles = await Promise.all(
    served.map(async (listed) => {
      const members = listed.members ?? [listed];
      // The time limit of a function must be at least as long as any cluster waits for one of the function's rules.
      const timeouts = clusters.flatMap(({ rules }) =>
        members.map(({ name, rule }) => findLongestTimeoutSeconds(rule, rules.get(name))),
      );
      // A group's function gets the largest number of its members. A rule that is off everywhere needs no environments.
      const configs = clusters.flatMap(({ rules }) => members.flatMap(({ name }) => rules.get(name) ?? []));
      const reserved = configs.flatMap((own) => own.reserved ?? []);
      const warm = configs.flatMap((own) => (own.mode === "off" ? [] : (own.warm ?? [])));
      // A bundle has connections only to the clusters that it asks, and its role may read only their tokens.
      const asked = [...connections].filter(
        ([name]) => listRulesAskingCluster(members, config.clusters.get(name)).length > 0,
      );
      const made = await bundleRule(listed, buildEndpointConfig(config, listed), distFolder, {
        connections: Object.fromEntries(asked),
        places: listRecordingBucketSettings(config, listed),
      });
      return {
        ...made,
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
  return { bundles, resources, notes: [...warnings, ...notes] };
};

/**
 * Bundles rules into another folder, for direct invocation. An event brings the settings and the answers, so these
 * bundles need no connection and no ledger, but may need CUE. Rules in `names` are bundled even if they are off.
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
  for (const warning of await requireRightRules(listMembers(wanted), getConfigFile())) writeNote(warning);
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

/** Returns the rules, with the members of groups in place of these. */
const listMembers = (served: readonly CatalogueRule[]): CatalogueRule[] =>
  served.flatMap((listed) => listed.members ?? [listed]);

/** Deletes what an earlier build made for rules that are no longer named. */
const deleteStaleBundles = async (distFolder: string, names: string[]) => {
  const kept = [...names, "packages"];
  for (const entry of await readdir(distFolder, { withFileTypes: true }))
    if ((entry.isDirectory() || entry.name.endsWith(".zip")) && !kept.includes(entry.name.replace(/\.zip$/, "")))
      await rm(`${distFolder}${entry.name}`, { recursive: true });
};
