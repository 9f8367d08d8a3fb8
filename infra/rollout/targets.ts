import { dirname } from "node:path";
import type { AwsStage } from "../aws/stage.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { toLogicalId } from "../catalogue/rule-names.ts";
import { Complaint } from "../cli/complaint.ts";
import type { Progress } from "../cli/progress.ts";
import { type ClusterCredentialOptions, openClusterApi, readEksServerAndCa } from "../clusters/access.ts";
import type { ClusterApi } from "../clusters/api.ts";
import { listOwnPolicies } from "../clusters/apply.ts";
import { createInspectedCluster } from "../clusters/inspected-cluster.ts";
import { type InspectedClusterConfig, inspectClusterForSettings } from "../clusters/inspection.ts";
import { readPolicySupport } from "../clusters/version.ts";
import type { ClusterConfig, PosternConfig } from "../config/config.ts";
import { listRulesAskingCluster } from "../config/connections.ts";
import { placePolicies, toPolicySupport } from "../webhooks/native-policies.ts";
import { type RuleEndpoints, stageLabel, webhookConfigurationName } from "./cluster-manifests.ts";
import type { ReleasedCluster } from "./releases.ts";

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
  {
    stage,
    file,
    deployer,
    config,
  }: Pick<DeploymentTargets, "file" | "deployer" | "config"> & {
    stage: Pick<AwsStage, "readIdentity"> & Partial<AwsStage>;
  },
  name: string,
): Promise<ClusterApi> => {
  const { kubeconfig, context, right } = deployer;
  const isForSeveral = kubeconfig !== undefined && config.clusters.size > 1;
  return openClusterApi(name, getClusterConfig({ config }, name).connect, {
    ...{ identity: stage.readIdentity, guard: stage.guard, folder: dirname(file), kubeconfig },
    context: context ?? (isForSeveral ? name : undefined),
    ...{ preferred: name, right },
  });
};

/** Throws if the cluster has entries of another stage: a second stage would overwrite them. */
export const requireNoEntriesOfOtherStage = async (
  api: ClusterApi,
  { name }: Pick<AwsStage, "name">,
): Promise<void> => {
  const kinds = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] as const;
  const found = await Promise.all(kinds.map((kind) => api.get({ kind, name: webhookConfigurationName })));
  const isKnown = found.some((configuration) => configuration?.metadata.labels?.[stageLabel] !== undefined);
  for (const object of isKnown ? found : await listOwnPolicies(api, webhookConfigurationName)) {
    const owner = object?.metadata.labels?.[stageLabel];
    if (owner !== undefined && owner !== name)
      throw new Complaint(
        `cluster ${api.cluster} has its entries from stage ${owner}, not ${name}; postern destroy --stage ${owner} --configs-only --cluster ${api.cluster} deletes them`,
        1,
      );
  }
};

/** What the inspection of a cluster reads, and where from. */
type InspectionTargets = Pick<DeploymentTargets, "stage" | "file" | "deployer" | "config" | "catalogue" | "write">;

/**
 * Inspects a cluster of the deployment for all rules whose settings depend on the cluster's content, such as its
 * policies, and for the policies that it can evaluate itself. `before` is the last release of the cluster, which records
 * the kinds of policies that it didn't apply; they count as long as its minor version is the same. `isPlan`: if the cluster
 * can't be reached, the version in postern.yaml says which policies it can evaluate, as it does for entries that are only
 * written.
 */
export const inspectClusterOfDeployment = async (
  targets: InspectionTargets,
  name: string,
  before: ReleasedCluster | undefined,
  { isPlan = false } = {},
): Promise<InspectedClusterConfig> => {
  const { catalogue, write } = targets;
  const { cluster, notes } = await inspectClusterForSettings(catalogue, getClusterConfig(targets, name), async () =>
    createInspectedCluster(await openTargetCluster(targets, name)),
  );
  if (placePolicies(catalogue, cluster).length === 0) return { cluster, notes };
  const stated = toPolicySupport(cluster.kubernetes);
  const readSupport = async () => readPolicySupport(await openTargetCluster(targets, name));
  const policySupport =
    write === undefined
      ? await readSupport().catch((error: unknown) => {
          if (error instanceof Complaint && isPlan && stated) return stated;
          throw error;
        })
      : stated;
  const isSameMinor = before?.policies?.kubernetes === policySupport?.kubernetes;
  const unapplied = isSameMinor ? before?.policies?.unapplied : undefined;
  return { cluster: { ...cluster, policySupport: policySupport && { ...policySupport, unapplied } }, notes };
};
