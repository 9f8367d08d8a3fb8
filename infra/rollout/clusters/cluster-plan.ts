import { formatPage } from "../../catalogue/sources.ts";
import { Complaint, requireComplaint } from "../../cli/complaint.ts";
import type { ClusterApi, DeployedObject } from "../../clusters/api.ts";
import { findDifferences } from "../../clusters/apply.ts";
import { compareManifests } from "../../clusters/drift.ts";
import type { ClusterConfig } from "../../config/config.ts";
import { findGroupSavingMostCalls, type GroupAdvice } from "../../project/serial-calls.ts";
import { describeWaits, type WebhookEntry } from "../../webhooks/configurations.ts";
import { type PolicyPlacement, placePolicies } from "../../webhooks/native-policies.ts";
import { chooseFailClosedRules, type StageRecord } from "../plan/hardening.ts";
import type { Keyring } from "../stage/keyring.ts";
import {
  type DeploymentTargets,
  getClusterConfig,
  getNewestUrlKeyVersion,
  inspectClusterOfDeployment,
  openTargetCluster,
  readLiveEntries,
  requireOwnEntries,
  resolveRuleEndpoints,
} from "../targets.ts";
import type { Release } from "../versions/releases.ts";
import { describeAccessEntryChanges, listFunctionGroups } from "./access-entries.ts";
import {
  buildClusterManifests,
  insertKeyIntoUrls,
  listEntries,
  type RuleEndpoints,
  webhookConfigurationName,
} from "./cluster-manifests.ts";
import { readWrittenEntries } from "./written-files.ts";

/** What a deployment would change in one cluster. */
export interface ClusterPlan {
  cluster: string;
  /** The rules whose entries get failurePolicy Fail. */
  hardened: string[];
  /** A sentence for each change. */
  differences: string[];
  /** The reason why the changes in this cluster are unknown; absent if they are known. */
  unknown?: string;
  /** Where the policies of its rules are evaluated. */
  policies: PolicyPlacement[];
  notes: string[];
  /** How long writes could wait if endpoints hang; absent if the cluster has no entries. */
  waits?: string | undefined;
  /** The group of rules that would save most calls in usual writes; absent if no group would save any. */
  groupAdvice?: GroupAdvice | undefined;
}

/**
 * Compares a cluster with postern.yaml for a deployment, which has a keyring, or for `postern plan`, which has none and
 * takes what the newest release records of the cluster. If the cluster can't be read, `unknown` in the plan says why.
 */
export const planCluster = async (
  targets: DeploymentTargets,
  name: string,
  record: StageRecord,
  keyring?: Keyring,
): Promise<ClusterPlan> => {
  const { newest, outputs } = record;
  const isDeployment = keyring !== undefined;
  const inspected = await inspectClusterOfDeployment(targets, name, newest?.clusters[name], {
    isPlan: !isDeployment,
  }).catch(requireComplaint);
  if (inspected instanceof Complaint)
    return { cluster: name, hardened: [], differences: [], unknown: inspected.message, policies: [], notes: [] };
  const { cluster } = inspected;
  const present = await readPresentEntries(targets, name, keyring);
  const endpoints = await resolveRuleEndpoints(targets, name, outputs);
  const { hardened: failClosedRules, notes: failOpenNotes } = await chooseFailClosedRules(
    targets,
    [name, cluster],
    { ...record, entries: "entries" in present ? present.entries : [] },
    endpoints,
  );
  const notes = [...inspected.notes, ...failOpenNotes, ...describeRelay(targets, name, endpoints)];
  const manifests = buildClusterManifests(targets.catalogue, cluster, endpoints, new Set(failClosedRules));
  const plan = {
    cluster: name,
    hardened: failClosedRules,
    policies: placePolicies(targets.catalogue, cluster),
    notes,
    waits: describeWaits(targets.catalogue, cluster), // how long writes could wait for webhooks that hang
    groupAdvice: await findBestGroupOfRules(targets, cluster, manifests),
  };
  if ("unknown" in present) return { ...plan, differences: [], unknown: present.unknown };
  const accessChanges = await planAccessEntries(targets, name, manifests, { newest, outputs, isDeployment });
  if (typeof accessChanges === "string") return { ...plan, differences: [], unknown: accessChanges };
  const objects = await planObjects(targets, name, { newest, keyring, outputs, cluster, manifests, api: present.api });
  return { ...plan, ...objects, differences: [...accessChanges, ...objects.differences] };
};

/**
 * Returns the group of rules that would save most calls. `buildClusterManifests` returns the same array for clusters
 * with the same rules, so the group is found once for all of these clusters.
 */
const findBestGroupOfRules = (
  { catalogue, config }: DeploymentTargets,
  cluster: ClusterConfig,
  manifests: DeployedObject[],
): Promise<GroupAdvice | undefined> => {
  const advice = adviceByArray.get(manifests) ?? findGroupSavingMostCalls(catalogue, cluster, config.clusters.values());
  adviceByArray.set(manifests, advice);
  return advice;
};

const adviceByArray = new WeakMap<DeployedObject[], Promise<GroupAdvice | undefined>>();

/** Returns a note for a cluster with a relay, a proxy that passes reviews on: which host to call with which key. */
const describeRelay = (
  { config, catalogue, stage }: DeploymentTargets,
  name: string,
  { base }: RuleEndpoints,
): string[] => {
  const { service } = getClusterConfig({ config }, name);
  if (service === undefined) return [];
  const url = base(catalogue[0]?.name ?? ""); // With a relay, all rules have the same host.
  const host = URL.canParse(url) ? new URL(url).host : "the host of the rules";
  return [
    `its API server calls the relay ${service.namespace}/${service.name}, which must call ${host} with the key that postern key ${name} --stage ${stage.name} prints; the relay itself isn't probed (${formatPage("how-to/relay.md")})`,
  ];
};

/**
 * Describes changes in the access entries of an EKS cluster, which put the roles of functions into Kubernetes groups.
 * Returns one sentence, no list, if they can't be read.
 */
const planAccessEntries = async (
  targets: DeploymentTargets,
  name: string,
  manifests: DeployedObject[],
  { newest, ...options }: { newest: Release | undefined; outputs: Record<string, string>; isDeployment: boolean },
): Promise<string[] | string> => {
  const before = newest?.clusters[name]?.manifests ?? [];
  const hasGroups = listFunctionGroups([...before, ...manifests]).length > 0;
  if (!hasGroups) return []; // No function reads the cluster, neither before nor after the deployment.
  return describeAccessEntryChanges(targets, name, manifests, options).catch((error: unknown) => {
    if (error instanceof Complaint) return error.message;
    throw error;
  });
};

/** Describes the changes to the objects in a cluster. */
const planObjects = async (
  targets: DeploymentTargets,
  name: string,
  wanted: {
    newest: Release | undefined;
    keyring: Keyring | undefined;
    outputs: Record<string, string>;
    cluster: ClusterConfig;
    manifests: DeployedObject[];
    api: ClusterApi | undefined;
  },
): Promise<Pick<ClusterPlan, "differences" | "unknown">> => {
  const { newest, keyring, outputs, cluster, manifests, api } = wanted;
  const keyVersion = getNewestUrlKeyVersion(cluster);
  const signer = keyring?.current.publicKey ?? newest?.keys?.signer;
  const hasRelay = cluster.service !== undefined;
  const differences = describeChangesSinceRelease(newest, name, { manifests, keyVersion, signer, hasRelay });
  const equalsRelease = differences.length === 0;
  if (targets.write !== undefined)
    return { differences: equalsRelease ? [] : [`the entries are written to ${targets.write}`] };
  if (keyring === undefined || api === undefined) {
    // `postern plan` doesn't read clusters. If the stack exists, they may have entries that no release records.
    const stackExists = Object.keys(outputs).length > 0;
    if (stackExists && newest === undefined) return { differences: [unrecordedEntriesNote] };
    const unfinished = `release r${newest?.id} was not finished, and the cluster may lack some of its entries`;
    return { differences: newest?.complete === false ? [...differences, unfinished] : differences };
  }
  try {
    // A rule that isn't in the stack yet has no base URL, so the URL in its entry begins with a slash.
    const haveBaseUrls = listEntries(manifests).every(({ clientConfig }) => clientConfig.url.startsWith("https:"));
    if (!haveBaseUrls) return { differences: equalsRelease ? ["the stack has no URL for some entries"] : differences };
    const objects = insertKeyIntoUrls(manifests, keyring.current.signSegment(name, keyVersion));
    const found = (await findDifferences(api, objects, webhookConfigurationName)).map(({ sentence }) => sentence);
    if (found.length > 0 || equalsRelease) return { differences: found };
    // No object has the relay's key. Equal objects don't show that the relay got it: the release's differences stay.
    if (hasRelay) return { differences };
    return { differences: ["nothing to change in the cluster, but the release doesn't record that yet"] };
  } catch (error) {
    return { differences: [], unknown: requireComplaint(error).message };
  }
};

const unrecordedEntriesNote = "no release records its entries; postern deploy compares them with the cluster itself";

/** A cluster's client and entries, or why they can't be read. Without `api`, the cluster itself is not read. */
type PresentCluster = { api?: ClusterApi; entries: WebhookEntry[] } | { unknown: string };

/**
 * Reads the entries in a cluster, which must be from this stage. With --write, reads the entries in the files.
 * `postern plan`, which has no keyring, needs no rights in clusters: for it, the list is empty.
 */
const readPresentEntries = async (
  targets: DeploymentTargets,
  name: string,
  keyring: Keyring | undefined,
): Promise<PresentCluster> => {
  if (targets.write !== undefined) return { entries: await readWrittenEntries(targets.write, name) };
  if (keyring === undefined) return { entries: [] };
  try {
    const api = await openTargetCluster(targets, name);
    await requireOwnEntries(api, targets);
    return { api, entries: await readLiveEntries(api) };
  } catch (error) {
    return { unknown: requireComplaint(error).message };
  }
};

/** Describes what differs between the wanted objects and key of a cluster and those that the newest release records. */
export const describeChangesSinceRelease = (
  newest: Release | undefined,
  name: string,
  wanted: { manifests: DeployedObject[]; keyVersion: number; signer: string | undefined; hasRelay?: boolean },
): string[] => {
  const before = newest?.clusters[name];
  const found = compareManifests(before?.manifests ?? [], wanted.manifests).map(({ sentence }) => sentence);
  if (before === undefined) return found;
  const [getKey, mustBeSigned] = wanted.hasRelay
    ? ["its relay must get a key", "its relay must get a key that is signed"]
    : ["its URLs get a key", "its URLs must be signed"];
  if (before.keyVersion !== wanted.keyVersion)
    found.push(`${getKey} of version ${wanted.keyVersion}, not ${before.keyVersion}`);
  if (before.signer !== wanted.signer) found.push(`${mustBeSigned} with the stage's current key`);
  return found;
};
