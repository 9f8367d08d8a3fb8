import { dirname } from "node:path";
import type { Stage } from "../aws/stage.ts";
import type { Listed } from "../catalogue/registry.ts";
import { idOf } from "../catalogue/rule-names.ts";
import { Complaint } from "../cli/complaint.ts";
import type { Progress } from "../cli/progress.ts";
import { type Deployer, describeEks, openCluster } from "../clusters/access.ts";
import type { ClusterApi } from "../clusters/api.ts";
import { inspectCluster, toInspected } from "../clusters/inspection.ts";
import type { Cluster, Config } from "../config/config.ts";
import { askingRules } from "../config/connections.ts";
import { configurationName, type Endpoints, stageLabel } from "./cluster-manifests.ts";

/** The clusters that are told of a stage's rules, and how. */
export interface Targets {
  stage: Stage;
  config: Config;
  catalogue: Listed[];
  /** Where `config` was read. */
  file: string;
  /** Those whose entries are renewed; functions serve all of them. */
  clusters: string[];
  deployer: Deployer;
  /** Instead of the gateway's own address and its public certificate. */
  url?: string | undefined;
  ca?: string | undefined;
  /** Guards fail closed at once, or after so many reviews, if none was lost. */
  harden: boolean | number;
  /** A folder to write the entries to, the key left out, instead of applying them. */
  write?: string | undefined;
  progress: Progress;
}

export const clusterOf = ({ config }: Pick<Targets, "config">, name: string): Cluster => {
  const cluster = config.clusters.get(name);
  if (cluster === undefined) throw new Complaint(`postern.yaml has no cluster "${name}"`);
  return cluster;
};

/** The key version that a cluster's URLs are signed with. */
export const keyVersionOf = ({ keyVersions }: Cluster): number => keyVersions.at(-1) ?? 1;

/** EKS says where a cluster is that postern.yaml doesn't say it of. */
export const resolveAddresses = async ({ config, catalogue, stage }: Targets): Promise<Config> => {
  const clusters = [...config.clusters].map(async ([name, cluster]): Promise<[string, Cluster]> => {
    const { connect } = cluster;
    const isOpen = connect?.eks !== undefined && connect.server === undefined;
    if (!isOpen || askingRules(catalogue, cluster).length === 0) return [name, cluster];
    return [name, { ...cluster, connect: { ...connect, ...(await describeEks(connect, stage.identity)) } }];
  });
  return { ...config, clusters: new Map(await Promise.all(clusters)) };
};

/** Where rules are served, as the stack says, or whoever stands in front of it. */
export const toEndpoints = (
  { url, ca, stage }: Pick<Targets, "url" | "ca"> & { stage: Pick<Stage, "name"> },
  outputs: Record<string, string>,
): Endpoints => ({
  ...{ ca, stage: stage.name },
  base: (rule) => (url ?? outputs.BaseUrl ?? outputs[`${idOf(rule)}BaseUrl`] ?? "").replace(/\/+$/, ""),
});

/** Whom we are to a cluster. A kubeconfig's context of its name is meant for it; one for several has one for each. */
export const openTarget = (
  { stage, file, deployer, config }: Pick<Targets, "stage" | "file" | "deployer" | "config">,
  name: string,
): Promise<ClusterApi> => {
  const { kubeconfig, context } = deployer;
  const isForSeveral = kubeconfig !== undefined && config.clusters.size > 1;
  return openCluster(name, clusterOf({ config }, name).connect, {
    ...{ identity: stage.identity, guard: stage.guard, folder: dirname(file), kubeconfig },
    context: context ?? (isForSeveral ? name : undefined),
    preferred: name,
  });
};

/** Of two stages that told one cluster, the other's entries would be lost, and those who rely on them not told. */
export const requireOwnStage = async (api: ClusterApi, { name }: Pick<Stage, "name">): Promise<void> => {
  for (const kind of ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] as const) {
    const found = await api.get({ kind, name: configurationName });
    const owner = found?.metadata.labels?.[stageLabel];
    if (owner !== undefined && owner !== name)
      throw new Complaint(
        `cluster ${api.cluster} has its entries from stage ${owner}, not ${name}; postern destroy --stage ${owner} --configs-only --cluster ${api.cluster} would free it`,
        1,
      );
  }
};

/** A cluster with what its rules' surveys found there, and what is worth saying of it. */
export const inspectTarget = (
  targets: Pick<Targets, "stage" | "file" | "deployer" | "config" | "catalogue">,
  name: string,
): ReturnType<typeof inspectCluster> =>
  inspectCluster(targets.catalogue, clusterOf(targets, name), async () => toInspected(await openTarget(targets, name)));
