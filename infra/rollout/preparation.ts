import { requireChangeableStack } from "../aws/stack.ts";
import type { AwsStage } from "../aws/stage.ts";
import { Complaint } from "../cli/complaint.ts";
import { runInParallel } from "../cli/progress.ts";
import type { ClusterVersion } from "../clusters/version.ts";
import { describeEndingExceptions } from "../config/exceptions.ts";
import { findPresentPlugins, getStatedFacts } from "../project/present-plugins.ts";
import { chooseClusterMinors, type FoundVersions, readClusterVersions } from "./clusters/cluster-minors.ts";
import { describeClusterNetwork } from "./clusters/cluster-network.ts";
import { planCluster } from "./clusters/cluster-plan.ts";
import { readFunctionState } from "./clusters/disarm.ts";
import { type StageDifference, tryFindStageDifferences } from "./plan/differences.ts";
import { createStageCountsReader } from "./plan/hardening.ts";
import { compareRights, listStackRules, planStack, readEndpointType } from "./plan/kept-functions.ts";
import { findExceededLimits } from "./plan/limits.ts";
import { type DeploymentPlan, planRuleChanges, type RuleChangePlan, readFunctionStates } from "./plan/plan.ts";
import type { Keyring } from "./stage/keyring.ts";
import { planLedger } from "./stage/ledger-table.ts";
import { type DeploymentTargets, getClusterConfig, resolveEksServers } from "./targets.ts";
import type { CanaryOptions } from "./versions/canary.ts";
import { packageStage } from "./versions/package.ts";
import {
  findRefusedClusters,
  listReleasedClusters,
  type Release,
  type ReleaseStore,
  readReleaseStore,
} from "./versions/releases.ts";
import { planWarmEnvironments } from "./versions/warm.ts";

/** The targets and the options of a deployment. */
export interface DeploymentJob extends DeploymentTargets {
  canary?: CanaryOptions | undefined;
  /** The number of clusters that are updated in parallel. */
  wave: number;
  /** Clusters that don't exist any more; they are removed from the release. */
  forgotten?: string[];
  signal?: AbortSignal | undefined;
}

/** The number of functions that are changed in parallel; Lambda's API allows 15 calls per second. */
export const maxParallelFunctionChanges = 5;

/** A deployment that is planned, and what its steps need. */
export interface PreparedDeployment {
  job: DeploymentJob;
  releases: ReleaseStore;
  keyring: Keyring | undefined;
  /** The public keys that functions accept, as in POSTERN_KEYS. */
  publicKeys: string;
  /** Clusters removed from postern.yaml, which functions refuse, and public keys that may have signed their URLs. */
  refusedClusters: Record<string, string>;
  /** The minor versions of Kubernetes for which the functions are built, by cluster. */
  kubernetes: Record<string, string>;
  plan: DeploymentPlan;
}

/**
 * Builds the functions, and compares the stage and its clusters with what is deployed. Without a keyring, the public
 * keys and the state of clusters come from the newest release, so `postern plan` needs no private key and no rights in
 * clusters.
 */
export const prepareDeployment = async (
  job: DeploymentJob,
  keyring: Keyring | undefined,
  build = packageStage,
): Promise<PreparedDeployment> => {
  const { stage, catalogue, file } = job;
  const identity = await stage.readStageIdentity();
  const resolved = await resolveEksServers(job);
  const [versions, releases, deployed, outputs] = await Promise.all([
    readClusterVersions(job),
    readReleaseStore(stage.openStageBucket),
    stage.stack.readTemplate(),
    stage.stack.readOutputs(),
  ]);
  const [newest] = releases.all;
  const acceptedKeys = await readPublicKeys(job, newest);
  const lostKeys = keyring === undefined ? [] : findLostKeys(newest, keyring.publicKeys, acceptedKeys);
  const publicKeys = keyring === undefined ? acceptedKeys : [...lostKeys, keyring.publicKeys].join(",");
  const refusedClusters = findRefusedClusters(newest, resolved, publicKeys);
  const {
    clusters: versioned,
    kubernetes,
    notes: versionNotes,
  } = chooseClusterMinors(resolved, catalogue, versions, newest?.kubernetes);
  const config = { ...resolved, clusters: versioned, refused: Object.keys(refusedClusters) };
  const built = await build(stage.name, config, catalogue, file, publicKeys);
  const names = built.parts.map(({ name }) => name);
  const states = await readFunctionStates(stage, names, releases.all);
  const missing = listStackRules(deployed, stage.name).find((rule) => names.includes(rule) && !states.has(rule));
  if (missing !== undefined) requireChangeableStack(stage.name, await stage.stack.readStatus());
  if (missing !== undefined)
    throw new Complaint(
      `the stack has a function for ${missing}, but the function was deleted in Lambda; turn the rule off until a later release has removed it from the stack`,
      1,
    );
  const parts = planRuleChanges(built.parts, states, releases.all, [...config.clusters.keys()]);
  const readCounts = createStageCountsReader({ stage, catalogue, config }, outputs);
  const clusters = await runInParallel(maxParallelFunctionChanges, job.clusters, async (name) => {
    const planned = await planCluster(job, name, { newest, outputs, readCounts }, keyring);
    const versionNote = versionNotes.get(name) ?? [];
    return {
      ...planned,
      notes: [...planned.notes, versionNote, await describeClusterNetwork(job, name, built.parts)].flat(),
    };
  });
  const ledger = await planLedger(stage, built.parts);
  const warm = await planWarmEnvironments(stage.functions, parts, newest);
  const hasOtherChanges = [
    ...[...parts, ...warm].map(({ changes }) => changes),
    ...clusters.map(({ differences }) => differences),
  ].some(({ length }) => length > 0);
  const { template, stack, kept } = planStack(stage.name, built, { deployed, releases: releases.all, hasOtherChanges });
  const rights = compareRights(deployed, template);
  const compared = await tryFindStageDifferences(stage, [...states.values()], newest, async () => deployed);
  const differences = compared.differences.map((difference) => addRepair(difference, stage, parts));
  const quotas = await stage.functions.readQuotas();
  const limits = [
    ...findExceededLimits({ template, parts, warm }, deployed, quotas),
    ...findUnservedRelays(job, readEndpointType(template)),
  ];
  const notes = [
    ...built.notes,
    ...(quotas === undefined ? [quotasNote] : []),
    ...(releases.all.length === 0 && states.size > 0 ? [lostReleasesNote] : []),
    ...(lostKeys.length > 0 ? [lostKeyNote] : []),
    ...compared.notes,
    ...describeEndingExceptions(config.clusters.values(), new Date()),
  ];
  const presentPlugins = findPresentPlugins(catalogue, listKnownClusters({ ...job, config }, versions));
  const changes = { stack, template, parts, kept, warm, ledger, differences, rights, clusters };
  const plan = { identity, ...changes, presentPlugins, limits, notes };
  return { job, releases, keyring, publicKeys, refusedClusters, kubernetes, plan };
};

/**
 * Returns a sentence for each cluster with a relay if each function has its own URL: a relay calls only one address.
 */
const findUnservedRelays = ({ config, clusters, url }: DeploymentJob, endpoint: string): string[] =>
  endpoint === "url" && url === undefined
    ? clusters
        .filter((name) => getClusterConfig({ config }, name).service !== undefined)
        .map(
          (name) =>
            `the relay of cluster ${name} calls one address, and each function has a URL of its own: it needs endpoint http in serverless.yml, or --url`,
        )
    : [];

/** Returns each cluster's managed service, such as `eks`, and minor: as its API server or else postern.yaml says. */
const listKnownClusters = (targets: Pick<DeploymentTargets, "config" | "clusters">, versions: FoundVersions) =>
  targets.clusters.map((name) => {
    const [cluster, found] = [getClusterConfig(targets, name), versions.get(name)];
    const live: Partial<ClusterVersion> = found === undefined || found instanceof Complaint ? {} : found;
    const { service, kubernetes } = getStatedFacts(cluster);
    return { name, cluster, facts: { service: live.service ?? service, kubernetes: live.minor ?? kubernetes } };
  });

/** If $LATEST of a rule's function was changed by hand, adds a repair that gives $LATEST what the plan wants. */
const addRepair = (difference: StageDifference, { functions }: AwsStage, parts: RuleChangePlan[]): StageDifference => {
  const part = parts.find(({ part: { name } }) => name === difference.ruleOfLatest)?.part;
  return part === undefined ? difference : { ...difference, repair: () => functions.setLatest(part.name, part.wanted) };
};

const quotasNote =
  "limits: the account's quotas of Lambda were not compared, because this identity has no right to lambda:GetAccountSettings";

const lostReleasesNote =
  "releases: the bucket has none, though functions are live: a new history begins with their live versions, and rollbacks to earlier releases are not possible any more";

const lostKeyNote =
  "keys: URLs in clusters are signed by a key that this stage doesn't have any more: functions accept it until the deployment after the one that gives all clusters new URLs";

/**
 * Returns the accepted public keys that signed the URLs of clusters but are not in SSM any more. Functions must accept
 * such a key as long as a cluster has URLs that it signed. Without a release, any accepted key may have signed URLs.
 */
const findLostKeys = (newest: Release | undefined, publicKeys: string, accepted: string): string[] => {
  const present = publicKeys.split(",");
  const used = listReleasedClusters(newest).map(([, { signer }]) => signer);
  return accepted
    .split(",")
    .filter((key) => key !== "" && !present.includes(key))
    .filter((key) => newest === undefined || used.includes(key));
};

/** Returns the public keys that functions accept: from the newest release, or else from the variables of a function. */
const readPublicKeys = async (
  { stage: { functions } }: DeploymentJob,
  newest: Release | undefined,
): Promise<string> => {
  if (newest?.keys) return newest.keys.accepted;
  const [rule] = await functions.listRules();
  if (rule === undefined) return "";
  const { ruleVersion } = await readFunctionState(functions, rule);
  return ruleVersion.environment.POSTERN_KEYS ?? "";
};
