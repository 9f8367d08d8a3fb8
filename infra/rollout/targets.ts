import { dirname } from "node:path";
import { toMap } from "#lib/json.ts";
import { formatStageIdentity, isSameStage } from "../aws/identity.ts";
import type { AwsStage } from "../aws/stage.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { toLogicalId } from "../catalogue/rule-names.ts";
import { Complaint } from "../cli/complaint.ts";
import type { Progress } from "../cli/progress.ts";
import { toOneLine } from "../cli/terminal.ts";
import { type ClusterCredentialOptions, openClusterApi, readEksServerAndCa } from "../clusters/access.ts";
import type { ClusterApi, DeployedObject } from "../clusters/api.ts";
import { isUnderBase, listOwnPolicies, readConfigurations } from "../clusters/apply.ts";
import { createInspectedCluster } from "../clusters/inspected-cluster.ts";
import { type InspectedClusterConfig, inspectClusterForSettings } from "../clusters/inspection.ts";
import { readPolicySupport } from "../clusters/version.ts";
import type { ClusterConfig, PosternConfig } from "../config/config.ts";
import { listRulesAskingCluster, readRelayCa } from "../config/connections.ts";
import type { WebhookEntry } from "../webhooks/configurations.ts";
import { placePolicies, toPolicySupport } from "../webhooks/native-policies.ts";
import {
  identityAnnotation,
  listEntries,
  type RuleEndpoints,
  webhookConfigurationName,
} from "./clusters/cluster-manifests.ts";
import type { ReleasedCluster } from "./versions/releases.ts";

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
   * Which security rules get failurePolicy Fail. true: all. A number: those that have it, and those with so many
   * reviews without failure. false: only those that have it.
   */
  harden: boolean | number;
  /** Rules whose entries fail open again, though they fail closed now. */
  soften?: string[];
  /** A folder into which the webhook entries are written, without the key, instead of being applied. */
  write?: string | undefined;
  /** The text in these files instead of the key. */
  keyFrom?: string | undefined;
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

/** Returns a function that finds the base URL of each rule's function, for webhook entries. */
export const createBaseUrlFinder =
  (outputs: Record<string, string>, url?: string) =>
  (rule: string): string =>
    (url ?? outputs.BaseUrl ?? outputs[`${toLogicalId(rule)}BaseUrl`] ?? "").replace(/\/+$/, "");

/**
 * Returns what a cluster's webhook entries have of a stage: where its functions are reached, and which stage it is; and the
 * CA of the cluster's relay.
 */
export const resolveRuleEndpoints = async (
  { url, ca, stage, config, file }: Pick<DeploymentTargets, "url" | "ca" | "stage" | "config" | "file">,
  name: string,
  outputs: Record<string, string>,
): Promise<RuleEndpoints> => ({
  ca,
  relayCa: await readRelayCa(getClusterConfig({ config }, name), name, file),
  stage: stage.name,
  identity: formatStageIdentity(await stage.readStageIdentity()),
  base: createBaseUrlFinder(outputs, url),
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
    identity: stage.readIdentity,
    guard: stage.guard,
    folder: dirname(file),
    kubeconfig,
    context: context ?? (isForSeveral ? name : undefined),
    preferred: name,
    right,
  });
};

/**
 * Throws unless the entries in a cluster are this stage's: a second stage, also one of the same name in another account or
 * region, would overwrite them. Entries without the annotation are this stage's if all of them call its addresses.
 */
export const requireOwnEntries = async (
  api: ClusterApi,
  { stage, url }: { stage: Pick<AwsStage, "stack" | "readStageIdentity">; url?: string | undefined },
): Promise<void> => {
  const found = await readConfigurations(api, webhookConfigurationName);
  const configurations = found.filter((object) => object !== undefined);
  const hasEntries = listEntries(configurations).length > 0;
  const objects = hasEntries ? configurations : await listOwnPolicies(api, webhookConfigurationName);
  if (objects.length === 0) return;
  const readOwner = ({ metadata }: DeployedObject) => metadata.annotations?.[identityAnnotation];
  const identity = await stage.readStageIdentity();
  const thisStage = formatStageIdentity(identity);
  const other = objects.map(readOwner).find((owner) => owner !== undefined && !isSameStage(owner, identity));
  if (other !== undefined)
    throw new Complaint(
      `cluster ${api.cluster} has its entries from ${toOneLine(other)}, not from ${thisStage}; there, postern destroy --configs-only --cluster ${api.cluster} deletes them`,
      1,
    );
  const unmarked = objects.filter((object) => readOwner(object) === undefined);
  if (unmarked.length === 0) return;
  const bases = hasEntries ? listBaseUrls(await stage.stack.readOutputs(), url) : [];
  const stray = listEntries(unmarked).find(
    ({ clientConfig }) => !bases.some((base) => isUnderBase(clientConfig?.url, base)),
  );
  if (hasEntries && stray === undefined) return;
  const what = hasEntries ? `entries that call ${describeHost(stray)}` : "policies";
  const names = unmarked.map(({ kind, metadata: { name } }) => `${kind.toLowerCase()}/${name}`).join(" ");
  throw new Complaint(
    `cluster ${api.cluster} has ${what} without the annotation ${identityAnnotation}, so they may be another stage's than ${thisStage}: if they are this one's, kubectl annotate ${names} ${identityAnnotation}=${thisStage} says so`,
    1,
  );
};

/** Returns the base URLs of a stage's functions. */
export const listBaseUrls = (outputs: Record<string, string>, url?: string): string[] => [
  ...Object.entries(outputs).flatMap(([name, value]) => (name.endsWith("BaseUrl") ? [value] : [])),
  ...(url === undefined ? [] : [url]),
];

/** Returns the scheme and the host that an entry calls, without its key; or its relay. */
const describeHost = (entry: Partial<WebhookEntry> = {}): string => {
  const { url, service } = toMap(entry.clientConfig);
  if (service !== undefined) return "a Service";
  return typeof url === "string" && URL.canParse(url) ? new URL(url).origin : "no URL";
};

/** The webhook entries that a cluster has. */
export const readLiveEntries = async (api: ClusterApi): Promise<WebhookEntry[]> => {
  const found = await readConfigurations(api, webhookConfigurationName);
  return listEntries(found.filter((object) => object !== undefined));
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
