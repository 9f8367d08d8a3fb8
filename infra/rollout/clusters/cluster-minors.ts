import { describeUnknownMinor } from "#lib/since.ts";
import type { CatalogueRule } from "../../catalogue/registry.ts";
import { Complaint, requireComplaint } from "../../cli/complaint.ts";
import { runInParallel } from "../../cli/progress.ts";
import { type ClusterVersion, readClusterVersion } from "../../clusters/version.ts";
import type { ClusterConfig, PosternConfig } from "../../config/config.ts";
import { dependsOnVersion } from "../../project/present-plugins.ts";
import { differsByMinor } from "../../project/served.ts";
import { type DeploymentTargets, openTargetCluster } from "../targets.ts";

// The minor versions of Kubernetes for which functions are built. A stated one holds. Otherwise it is the one that the
// cluster runs; an unreachable cluster keeps the one that the last release recorded.

/** The versions of clusters, or why they can't be read. */
export type FoundVersions = ReadonlyMap<string, ClusterVersion | Complaint>;

const atOnce = 20;

/** Reads the versions of the deployment's clusters in which a rule, or whether its plugin is on, differs by it. */
export const readClusterVersions = async (targets: DeploymentTargets): Promise<FoundVersions> => {
  const { config, catalogue, clusters } = targets;
  const names = clusters.filter((name) => {
    const cluster = config.clusters.get(name);
    return hasDifferingRules(catalogue, cluster) || (cluster && dependsOnVersion(catalogue, cluster));
  });
  const read = async (name: string) => readClusterVersion(await openTargetCluster(targets, name));
  const found = await runInParallel(atOnce, names, async (name) => {
    return [name, await read(name).catch(requireComplaint)] as const;
  });
  return new Map(found);
};

/** The clusters for which functions are built, each with its minor version; and what a plan says about clusters. */
interface ChosenMinors {
  clusters: PosternConfig["clusters"];
  /** The minor versions by cluster, for the release. Clusters without a rule that differs by it are absent. */
  kubernetes: Record<string, string>;
  notes: ReadonlyMap<string, string>;
}

/**
 * Chooses the minor version of each cluster from postern.yaml, what was found, and what the last release recorded. The
 * recorded one is kept if no rule behaves otherwise in the found one, so that functions stay the same.
 */
export const chooseClusterMinors = (
  { clusters }: Pick<PosternConfig, "clusters">,
  catalogue: CatalogueRule[],
  found: FoundVersions,
  recorded: Record<string, string> = {},
): ChosenMinors => {
  const kubernetes: Record<string, string> = {};
  const notes = new Map<string, string>();
  const choose = (name: string, cluster: ClusterConfig): ClusterConfig => {
    const rules = listDifferingRules(catalogue, cluster);
    if (rules.length === 0) return cluster;
    const [version, last] = [found.get(name), recorded[name]];
    const live = version instanceof Complaint ? undefined : version?.minor;
    const isKept = live === undefined || (last !== undefined && !differsByMinor(rules, last, live));
    const minor = cluster.kubernetes ?? (isKept ? last : live);
    if (minor !== undefined) kubernetes[name] = minor;
    if (live !== undefined && minor !== undefined && differsByMinor(rules, minor, live))
      notes.set(name, describeStatedMinor(live, minor));
    const unknown = describeUnknownMinor(minor);
    if (unknown !== undefined) notes.set(name, unknown);
    if (version instanceof Complaint && minor === undefined) notes.set(name, `${unknownMinor}: ${version.message}`);
    return minor === undefined ? cluster : { ...cluster, kubernetes: minor };
  };
  return {
    clusters: new Map([...clusters].map(([name, cluster]) => [name, choose(name, cluster)])),
    kubernetes,
    notes,
  };
};

/**
 * Describes a cluster in which a rule behaves as in another minor version than the cluster's; undefined for others. Without
 * `built`, functions behave as in the newest version.
 */
export const describeMinorDrift = (
  catalogue: CatalogueRule[],
  cluster: ClusterConfig,
  built: string | undefined,
  live: string,
): string | undefined => {
  if (!differsByMinor(listDifferingRules(catalogue, cluster), live, built)) return undefined;
  if (built !== undefined && cluster.kubernetes === built) return describeStatedMinor(live, built);
  return `it runs Kubernetes ${live}, but its functions were built for ${built ?? "the newest"}; postern deploy builds them again`;
};

/** Reports whether a rule that is on in a cluster differs by the minor version. */
export const hasDifferingRules = (catalogue: CatalogueRule[], cluster: ClusterConfig | undefined): boolean =>
  listDifferingRules(catalogue, cluster).length > 0;

const describeStatedMinor = (live: string, stated: string) =>
  `it runs Kubernetes ${live}, but its kubernetes in postern.yaml is "${stated}"`;

const unknownMinor =
  "its rules behave as in the newest Kubernetes, because its version can't be read; kubernetes in postern.yaml can state it";

const listDifferingRules = (catalogue: CatalogueRule[], cluster: ClusterConfig | undefined): CatalogueRule[] =>
  catalogue.filter(({ name, rule }) => rule.since && (cluster?.rules.get(name)?.mode ?? "off") !== "off");
