import { describeMinorOutOfRange } from "#lib/since.ts";
import type { CatalogueRule } from "../../catalogue/registry.ts";
import { Complaint, requireComplaint } from "../../cli/complaint.ts";
import { runInParallel } from "../../cli/progress.ts";
import { type ClusterVersion, readClusterVersion } from "../../clusters/version.ts";
import type { ClusterConfig, PosternConfig } from "../../config/config.ts";
import { hasPluginDependingOnVersion } from "../../project/present-plugins.ts";
import { differsByMinor } from "../../project/served.ts";
import { type DeploymentTargets, openTargetCluster } from "../targets.ts";

// This file chooses, for each cluster, the minor version of Kubernetes for which functions are built. The version in
// postern.yaml comes first, then the version that the cluster runs. If the cluster is unreachable, the version that the
// last release recorded stays.

/** The version of each cluster, or a complaint that says why it can't be read. */
export type FoundVersions = ReadonlyMap<string, ClusterVersion | Complaint>;

const atOnce = 20;

/** Reads the versions of clusters that decide a rule's answers, or whether a built-in plugin does the rule's work. */
export const readClusterVersions = async (targets: DeploymentTargets): Promise<FoundVersions> => {
  const { config, catalogue, clusters } = targets;
  const names = clusters.filter((name) => {
    const cluster = config.clusters.get(name);
    return hasRuleDependingOnMinor(catalogue, cluster) || (cluster && hasPluginDependingOnVersion(catalogue, cluster));
  });
  const read = async (name: string) => readClusterVersion(await openTargetCluster(targets, name));
  const found = await runInParallel(atOnce, names, async (name) => {
    const versionOrComplaint = await read(name).catch(requireComplaint); // throws errors that are no Complaint
    return [name, versionOrComplaint] as const;
  });
  return new Map(found);
};

/** The minor versions of Kubernetes for which functions are built. */
interface ChosenMinors {
  /** All clusters, with the chosen version in the field `kubernetes`. */
  clusters: PosternConfig["clusters"];
  /** The minor version of each cluster, for the release. Clusters in which no rule depends on it are absent. */
  kubernetes: Record<string, string>;
  /** What a plan says about the version of a cluster. */
  notes: ReadonlyMap<string, string>;
}

/**
 * Chooses the minor version of each cluster that has rules depending on it: the one in postern.yaml, or else the one
 * that the cluster runs. If postern.yaml has none, and all rules behave the same in the running version and in the one
 * that the last release recorded, the recorded one stays, so that functions stay the same.
 */
export const chooseClusterMinors = (
  { clusters }: Pick<PosternConfig, "clusters">,
  catalogue: CatalogueRule[],
  found: FoundVersions,
  recorded: Record<string, string> = {},
): ChosenMinors => {
  const kubernetes: Record<string, string> = {};
  const notes = new Map<string, string>(); // For each cluster, the last of the notes below that apply to it stays.
  const choose = (name: string, cluster: ClusterConfig): ClusterConfig => {
    const rules = listRulesDependingOnMinor(catalogue, cluster);
    if (rules.length === 0) return cluster;
    const [version, recordedMinor] = [found.get(name), recorded[name]];
    const live = version instanceof Complaint ? undefined : version?.minor;
    const keepsRecorded =
      live === undefined || (recordedMinor !== undefined && !differsByMinor(rules, recordedMinor, live));
    const minor = cluster.kubernetes ?? (keepsRecorded ? recordedMinor : live);
    if (minor !== undefined) kubernetes[name] = minor;
    if (live !== undefined && minor !== undefined && differsByMinor(rules, minor, live))
      notes.set(name, describeStatedMinor(live, minor));
    const outOfRangeNote = describeMinorOutOfRange(minor);
    if (outOfRangeNote !== undefined) notes.set(name, outOfRangeNote); // Postern doesn't know this version
    if (version instanceof Complaint && minor === undefined) notes.set(name, `${unreadableMinor}: ${version.message}`);
    return minor === undefined ? cluster : { ...cluster, kubernetes: minor };
  };
  return {
    clusters: new Map([...clusters].map(([name, cluster]) => [name, choose(name, cluster)])),
    kubernetes,
    notes,
  };
};

/**
 * Describes a cluster that runs another minor version (`live`) than the one for which its functions were built
 * (`built`), if a rule behaves differently in the two; else undefined. Without `built`, functions behave as in the
 * newest version.
 */
export const describeMinorDrift = (
  catalogue: CatalogueRule[],
  cluster: ClusterConfig,
  built: string | undefined,
  live: string,
): string | undefined => {
  if (!differsByMinor(listRulesDependingOnMinor(catalogue, cluster), live, built)) return undefined;
  if (built !== undefined && cluster.kubernetes === built) return describeStatedMinor(live, built);
  return `it runs Kubernetes ${live}, but its functions were built for ${built ?? "the newest"}; postern deploy builds them again`;
};

/** Reports whether a cluster has a rule that behaves differently in different minor versions. */
export const hasRuleDependingOnMinor = (catalogue: CatalogueRule[], cluster: ClusterConfig | undefined): boolean =>
  listRulesDependingOnMinor(catalogue, cluster).length > 0;

const describeStatedMinor = (live: string, stated: string) =>
  `it runs Kubernetes ${live}, but its kubernetes in postern.yaml is "${stated}"`;

const unreadableMinor =
  "its rules behave as in the newest Kubernetes, because its version can't be read; kubernetes in postern.yaml can state it";

const listRulesDependingOnMinor = (catalogue: CatalogueRule[], cluster: ClusterConfig | undefined): CatalogueRule[] =>
  catalogue.filter(({ name, rule }) => rule.since && (cluster?.rules.get(name)?.mode ?? "off") !== "off");
