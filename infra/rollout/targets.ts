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
  file: string; // the path of postern.yaml
  /** The clusters whose webhook configurations are updated. Functions are built for all clusters of postern.yaml. */
  clusters: string[];
  deployer: ClusterCredentialOptions;
  /** The base URL in webhook entries if it is not the API gateway's own. */
  url?: string | undefined;
  /** The certificate (PEM) of the CA for `url`. */
  ca?: string | undefined;
  /**
   * Which security rules get failurePolicy Fail. true: all. false: only rules that have it already. A number: also
   * rules that answered at least so many reviews without a failure.
   */
  harden: boolean | number;
  /** Rules whose entries get failurePolicy Ignore again. */
  soften?: string[];
  /** The folder of --write: webhook entries aren't applied but written to files there, without the keys in the URLs. */
  write?: string | undefined;
  /** The text that the files of --write have in place of the key. */
  keyPlaceholder?: string | undefined;
  progress: Progress;
}

export const getClusterConfig = ({ config }: Pick<DeploymentTargets, "config">, name: string): ClusterConfig => {
  const cluster = config.clusters.get(name);
  if (cluster === undefined) throw new Complaint(`postern.yaml has no cluster "${name}"`);
  return cluster;
};

/** Returns the key version for the URLs of a cluster: the last one in postern.yaml. */
export const getNewestUrlKeyVersion = ({ keyVersions }: ClusterConfig): number => keyVersions.at(-1) ?? 1;

/** Completes EKS clusters that rules read and that have no `server` in postern.yaml: adds server and CA from EKS. */
export const resolveEksServers = async ({ config, catalogue, stage }: DeploymentTargets): Promise<PosternConfig> => {
  const clusters = [...config.clusters].map(async ([name, cluster]): Promise<[string, ClusterConfig]> => {
    const { connect } = cluster;
    const lacksServer = connect?.eks !== undefined && connect.server === undefined;
    if (!lacksServer || listRulesAskingCluster(catalogue, cluster).length === 0) return [name, cluster];
    return [name, { ...cluster, connect: { ...connect, ...(await readEksServerAndCa(connect, stage.readAwsKeys)) } }];
  });
  return { ...config, clusters: new Map(await Promise.all(clusters)) };
};

/** Returns a function that returns the base URL of a rule's function. `outputs` are the outputs of the stack. */
export const createBaseUrlFinder =
  (outputs: Record<string, string>, url?: string) =>
  (rule: string): string =>
    (url ?? outputs.BaseUrl ?? outputs[`${toLogicalId(rule)}BaseUrl`] ?? "").replace(/\/+$/, "");

/** Returns what webhook entries of a cluster need: the URLs of functions, the stage's identity, and CA certificates. */
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

/** Returns a client for a cluster. If postern.yaml has several, the context in --kubeconfig must have its name. */
export const openTargetCluster = (
  targets: Pick<DeploymentTargets, "file" | "deployer" | "config"> & {
    stage: Pick<AwsStage, "readAwsKeys"> & Partial<AwsStage>;
  },
  name: string,
): Promise<ClusterApi> => {
  const { stage, file, deployer, config } = targets;
  const { kubeconfig, context, neededRight } = deployer;
  const isForSeveral = kubeconfig !== undefined && config.clusters.size > 1;
  return openClusterApi(name, getClusterConfig({ config }, name).connect, {
    identity: stage.readAwsKeys,
    guard: stage.guard,
    folder: dirname(file),
    kubeconfig,
    context: context ?? (isForSeveral ? name : undefined),
    preferredContext: name, // is used if `context` is undefined and the kubeconfig has it
    neededRight,
  });
};

/**
 * Throws if the webhook entries in a cluster are from another stage, which this stage would overwrite. If there are no
 * entries, checks the cluster's policies instead. Two stages of the same name in two accounts or regions are different
 * stages. Entries without the annotation `postern.dev/identity` count as this stage's if all of them call its addresses.
 * Policies call no address, so policies without the annotation are refused.
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
  const otherStage = objects.map(readOwner).find((owner) => owner !== undefined && !isSameStage(owner, identity));
  // The command in the message must run in the account and region of the other stage, and with its name.
  if (otherStage !== undefined)
    throw new Complaint(
      `cluster ${api.cluster} has its entries from ${toOneLine(otherStage)}, not from ${thisStage}; there, postern destroy --configs-only --cluster ${api.cluster} deletes them`,
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

/** Returns the base URLs of a stage's functions: those in the outputs of the stack, and that of the option --url. */
export const listBaseUrls = (outputs: Record<string, string>, urlOption?: string): string[] => [
  ...Object.entries(outputs).flatMap(([name, value]) => (name.endsWith("BaseUrl") ? [value] : [])),
  ...(urlOption === undefined ? [] : [urlOption]),
];

/** Describes what an entry calls, without the key in its URL, such as `https://rules.example.com` or "a Service". */
const describeHost = (entry: Partial<WebhookEntry> = {}): string => {
  const { url, service } = toMap(entry.clientConfig);
  if (service !== undefined) return "a Service";
  return typeof url === "string" && URL.canParse(url) ? new URL(url).origin : "no URL";
};

/** Reads the webhook entries that a cluster has now. */
export const readLiveEntries = async (api: ClusterApi): Promise<WebhookEntry[]> => {
  const found = await readConfigurations(api, webhookConfigurationName);
  return listEntries(found.filter((object) => object !== undefined));
};

/** What `inspectClusterOfDeployment` needs of a deployment. */
type InspectionTargets = Pick<DeploymentTargets, "stage" | "file" | "deployer" | "config" | "catalogue" | "write">;

/**
 * Inspects a cluster: some rules have settings that depend on the cluster's content, such as its policies, and the API
 * server can evaluate some kinds of policies itself. The cluster says which kinds; with --write, or if a plan
 * (`isPlan`) can't reach it, the minor version in postern.yaml does. `recorded`, from the last release, has the kinds
 * of policies that the API server accepted but didn't apply: functions evaluate those until its minor version changes.
 */
export const inspectClusterOfDeployment = async (
  targets: InspectionTargets,
  name: string,
  recorded: ReleasedCluster | undefined,
  { isPlan = false } = {},
): Promise<InspectedClusterConfig> => {
  const { catalogue, write } = targets;
  const { cluster, notes } = await inspectClusterForSettings(catalogue, getClusterConfig(targets, name), async () =>
    createInspectedCluster(await openTargetCluster(targets, name)),
  );
  if (placePolicies(catalogue, cluster).length === 0) return { cluster, notes }; // its rules have no policies
  const supportByConfig = toPolicySupport(cluster.kubernetes);
  const readSupport = async () => readPolicySupport(await openTargetCluster(targets, name));
  const policySupport =
    write === undefined
      ? await readSupport().catch((error: unknown) => {
          if (error instanceof Complaint && isPlan && supportByConfig) return supportByConfig;
          throw error;
        })
      : supportByConfig;
  const isSameMinor = recorded?.policies?.kubernetes === policySupport?.kubernetes;
  const unapplied = isSameMinor ? recorded?.policies?.unapplied : undefined;
  return { cluster: { ...cluster, policySupport: policySupport && { ...policySupport, unapplied } }, notes };
};
