// Start here. buildFunctions makes a bundle and a zip of every rule that postern.yaml names (bundle.ts, zip.ts), and
// writes what serverless.yml includes (deployment.ts). Nothing here calls AWS or a
// cluster.
import { readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type CatalogueRule, hasNeed } from "../catalogue/registry.ts";
import { Complaint } from "../cli/complaint.ts";
import { getProjectRoot } from "../cli/roots.ts";
import type { PosternConfig } from "../config/config.ts";
import { listRulesAskingCluster, readClusterConnections } from "../config/connections.ts";
import { listRecordingBucketSettings } from "../config/record-section.ts";
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
  // The time limit of a function must be at least as long as any cluster waits for one of the function's rules.
  const listTimeouts = ({ members, ...listed }: CatalogueRule) =>
    [...config.clusters.values()].flatMap(({ rules }) =>
      (members ?? [listed]).map(({ name, rule }) => findLongestTimeoutSeconds(rule, rules.get(name))),
    );
  // A group's function gets the largest number of its members. A rule that is off everywhere needs no environments.
  const findLargest = (key: "reserved" | "warm", { members, ...listed }: CatalogueRule) => {
    const configs = [...config.clusters.values()].flatMap(({ rules }) =>
      (members ?? [listed]).flatMap(({ name }) => rules.get(name) ?? []),
    );
    const numbers = configs.flatMap((own) => (key === "warm" && own.mode === "off" ? [] : (own[key] ?? [])));
    return numbers.length > 0 ? { [key]: Math.max(...numbers) } : {};
  };
  const { connections, faults, notes } = await readClusterConnections(config, catalogue, file, "aws");
  if (faults.length > 0) throw new Complaint(faults.join("\n"));
  // A bundle has connections only to the clusters that it asks, and its role may read only their tokens.
  const listConnections = ({ members, ...listed }: CatalogueRule) =>
    [...connections].filter(
      ([name]) => listRulesAskingCluster(members ?? [listed], config.clusters.get(name)).length > 0,
    );
  const distFolder = getDistFolder();
  const bundles = await Promise.all(
    served.map(async (listed) => {
      const timeoutSeconds = Math.max(...listTimeouts(listed));
      const own = Object.fromEntries(listConnections(listed));
      const endpointConfig = buildEndpointConfig(config, listed);
      const places = listRecordingBucketSettings(config, listed);
      const made = await bundleRule(listed, endpointConfig, distFolder, undefined, own, places);
      return { ...made, timeoutSeconds, ...findLargest("reserved", listed), ...findLargest("warm", listed) };
    }),
  );
  await deleteStaleBundles(
    distFolder,
    bundles.map(({ name }) => name),
  );
  const resources = await writeServerlessIncludes(bundles, publicKeys, distFolder, stage);
  return { bundles, resources, notes };
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
  return Promise.all(
    wanted.map(async (listed) => {
      const built = await bundleRule(listed, buildEndpointConfig(config, listed), outDir, Number.POSITIVE_INFINITY);
      if (hasNeed(listed, "cue"))
        for (const [file, content] of Object.entries(await readCueRuntimeFiles()))
          await writeFile(join(outDir, listed.name, file), getInflatedContents(content));
      return built;
    }),
  );
};

/** Deletes what an earlier build made for rules that are no longer named. */
const deleteStaleBundles = async (distFolder: string, names: string[]) => {
  const kept = [...names, "packages"];
  for (const entry of await readdir(distFolder, { withFileTypes: true }))
    if ((entry.isDirectory() || entry.name.endsWith(".zip")) && !kept.includes(entry.name.replace(/\.zip$/, "")))
      await rm(`${distFolder}${entry.name}`, { recursive: true });
};
