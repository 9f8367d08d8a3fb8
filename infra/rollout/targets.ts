import { dirname } from "node:path";
import type { AwsStage } from "../aws/stage.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { toLogicalId } from "../catalogue/rule-names.ts";
import { Complaint } from "../cli/complaint.ts";
import type { Progress } from "../cli/progress.ts";
import { type ClusterCredentialOptions, openClusterApi, readEksServerAndCa } from "../clusters/access.ts";
import type { ClusterApi } from "../clusters/api.ts";
import { createInspectedCluster } from "../clusters/inspected-cluster.ts";
import { inspectClusterForSettings } from "../clusters/inspection.ts";
import type { ClusterConfig, PosternConfig } from "../config/config.ts";
import { listRulesAskingCluster } from "../config/connections.ts";
import { type RuleEndpoints, stageLabel, webhookConfigurationName } from "./cluster-manifests.ts";

/** What a deployment reads and changes: a stage in AWS and the clusters of postern.yaml. */
export interface DeploymentTargets {
  stage: AwsStage;
  config: PosternConfig;
  catalogue: CatalogueRule[];
  file: string;
  /** The clusters whose webhook configurations are updated; functions serve all clusters. */
  clusters: string[];
  deployer: ClusterCredentialOptions;
  /** The base URL in webhook entries, in place of the API gateway's own; `ca` is the PEM of the CA for that URL. */
  url?: string | undefined;
  ca?: string | undefined;
  /**
   * Which security rules get failurePolicy Fail. true: all. A number: those that had it, and those with so many
   * reviews without failure. false: only those that had it.
   */
  harden: boolean | number;
  /** A folder into which the webhook entries are written, without the key, instead of being applied. */
  write?: string | undefined;
  progress: Progress;
}

export const getClusterConfig = ({ config }: Pick<DeploymentTargets, "config">, name: string): ClusterConfig => {
  const cluster = config.clusters.get(name);
  if (cluster === undefined) throw new Complaint(`postern.yaml has no cluster "${name}"`);
  return cluster;
};

/** Returns the newest key version of a cluster, which its URLs use. */
export const getNewestUrlKeyVersion = ({ keyVersions }: ClusterConfig): number => keyVersions.at(-1) ?? 1;

/** Adds the server and the CA from EKS to clusters that rules ask and that have no `server` in postern.yaml. */
export const resolveEksServers = async ({ config, catalogue, stage }: DeploymentTargets): Promise<PosternConfig> => {
  const clusters = [...config.clusters].map(async ([name, cluster]): Promise<[string, ClusterConfig]> => {
    const { connect } = cluster;
    const isOpen = connect?.eks !== undefined && connect.server === undefined;
    if (!isOpen || listRulesAskingCluster(catalogue, cluster).length === 0) return [name, cluster];
    return [name, { ...cluster, connect: { ...connect, ...(await readEksServerAndCa(connect, stage.readIdentity)) } }];
  });
  return { ...config, clusters: new Map(await Promise.all(clusters)) };
};

/** Returns the base URL of each rule's function, with the CA and the stage, for webhook entries. */
export const resolveRuleEndpoints = (
  { url, ca, stage }: Pick<DeploymentTargets, "url" | "ca"> & { stage: Pick<AwsStage, "name"> },
  outputs: Record<string, string>,
): RuleEndpoints => ({
  ...{ ca, stage: stage.name },
  base: (rule) => (url ?? outputs.BaseUrl ?? outputs[`${toLogicalId(rule)}BaseUrl`] ?? "").replace(/\/+$/, ""),
});

/** Returns a client for one cluster. A kubeconfig for several clusters must have a context of each cluster's name. */
export const openTargetCluster = (
  { stage, file, deployer, config }: Pick<DeploymentTargets, "stage" | "file" | "deployer" | "config">,
  name: string,
): Promise<ClusterApi> => {
  const { kubeconfig, context } = deployer;
  const isForSeveral = kubeconfig !== undefined && config.clusters.size > 1;
  return openClusterApi(name, getClusterConfig({ config }, name).connect, {
    ...{ identity: stage.readIdentity, guard: stage.guard, folder: dirname(file), kubeconfig },
    context: context ?? (isForSeveral ? name : undefined),
    preferred: name,
  });
};

/** Throws if the cluster has entries of another stage: a second stage would overwrite them. */
export const requireNoEntriesOfOtherStage = async (
  api: ClusterApi,
  { name }: Pick<AwsStage, "name">,
): Promise<void> => {
  for (const kind of ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] as const) {
    const found = await api.get({ kind, name: webhookConfigurationName });
    const owner = found?.metadata.labels?.[stageLabel];
    if (owner !== undefined && owner !== name)
      throw new Complaint(
        `cluster ${api.cluster} has its entries from stage ${owner}, not ${name}; postern destroy --stage ${owner} --configs-only --cluster ${api.cluster} deletes them`,
        1,
      );
  }
};

/**
 * Inspects a cluster of the deployment for all rules whose settings depend on the cluster's content, such as its
 * policies.
 */
export const inspectClusterOfDeployment = (
  targets: Pick<DeploymentTargets, "stage" | "file" | "deployer" | "config" | "catalogue">,
  name: string,
): ReturnType<typeof inspectClusterForSettings> =>
  inspectClusterForSettings(targets.catalogue, getClusterConfig(targets, name), async () =>
    createInspectedCluster(await openTargetCluster(targets, name)),
  );
