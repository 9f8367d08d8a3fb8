import { toMap } from "#lib/json.ts";
import { Complaint } from "../../cli/complaint.ts";
import { formatCount } from "../../cli/progress.ts";
import type { ClusterApi, DeployedObject } from "../../clusters/api.ts";
import { applyRbacObjects, applyWantedObjectsToCluster, findDifferences } from "../../clusters/apply.ts";
import { type PolicyKind, probePolicies } from "../../clusters/policy-probe.ts";
import { probeForFailingEntries } from "../../clusters/probe.ts";
import type { ClusterConfig } from "../../config/config.ts";
import { getRuleNameOfEntry, type WebhookEntry } from "../../webhooks/configurations.ts";
import { buildNativePolicies } from "../../webhooks/native-policies.ts";
import type { Keyring } from "../stage/keyring.ts";
import {
  type DeploymentTargets,
  getNewestUrlKeyVersion,
  inspectClusterOfDeployment,
  openTargetCluster,
  requireOwnEntries,
  resolveRuleEndpoints,
} from "../targets.ts";
import type { ReleasedCluster } from "../versions/releases.ts";
import { createAccessEntries, deleteAccessEntries, listFunctionGroups } from "./access-entries.ts";
import {
  buildClusterManifests,
  dropVariantEntries,
  insertKeyIntoUrls,
  listCalledRules,
  listEntries,
  webhookConfigurationName,
} from "./cluster-manifests.ts";
import { writeClusterFiles } from "./written-files.ts";

/** The update of one cluster. */
interface ClusterUpdate {
  name: string;
  /** What the last release records of the cluster. */
  before: ReleasedCluster | undefined;
  /** The rules whose entries get failurePolicy Fail. */
  failClosedRules: string[];
  keyring: Keyring;
  /** The outputs of the stack. */
  outputs: Record<string, string>;
}

/**
 * Applies a cluster's roles. Then, if every endpoint answers a probe at its real address, applies the entries. Before
 * that, `record` saves the cluster's new state in the release.
 */
export const updateCluster = async (
  targets: DeploymentTargets,
  { name, before, failClosedRules, keyring, outputs }: ClusterUpdate,
  record: (recorded: ReleasedCluster) => Promise<void>,
): Promise<void> => {
  const { catalogue, progress, write } = targets;
  // The update itself tests whether the cluster applies policies, so what the last release recorded is not used.
  const inspected = await inspectClusterOfDeployment(targets, name, write === undefined ? undefined : before);
  const api = write === undefined ? await openTargetCluster(targets, name) : undefined;
  if (api) await requireOwnEntries(api, targets);
  const cluster = api ? await probePolicySupport(targets, api, inspected.cluster) : inspected.cluster;
  const endpoints = await resolveRuleEndpoints(targets, name, outputs);
  const manifests = buildClusterManifests(catalogue, cluster, endpoints, new Set(failClosedRules));
  const keyVersion = getNewestUrlKeyVersion(cluster);
  const wanted = insertKeyIntoUrls(manifests, keyring.current.signSegment(name, keyVersion));
  const entries = listEntries(wanted);
  const signer = keyring.current.publicKey;
  if (api) await applyRbacObjects(api, wanted);
  else {
    // Roles and policies of the last release stay in the files: the entries that need them are replaced later.
    const isWanted = ({ kind, metadata }: DeployedObject) =>
      manifests.some((object) => object.kind === kind && object.metadata.name === metadata.name);
    const kept = (before?.manifests ?? []).filter((object) => !isWanted(object));
    await writeClusterFiles(targets, name, [...manifests, ...kept], ["roles", "policies"]);
  }

  const needsAccessEntries = cluster.connect?.eks !== undefined && listFunctionGroups(manifests).length > 0;
  let created = 0;
  if (needsAccessEntries)
    await progress.step(`cluster ${name}: access entries`, async () => {
      created = await createAccessEntries(targets, name, manifests, outputs);
      return created === 0 ? "nothing to change" : `${created} created`;
    });
  await progress.step(`cluster ${name}: endpoints`, async () => {
    // With --write, the roles aren't applied yet: to wait for new rights would not help.
    const failing = await probeForFailingEntries(entries, { functionHasNewRights: api !== undefined && created > 0 });
    const remedy = api
      ? ""
      : `\nif it may not read the cluster yet: apply the other files in ${write}, and run the command again`;
    if (failing.length > 0)
      throw new Complaint(
        `the entries of cluster ${name} were not changed, because not every endpoint answers:\n${failing.map(({ entry, sentence }) => `${entry}: ${sentence}`).join("\n")}${remedy}`,
        1,
      );
    return `${entries.length} answer`;
  });
  // Hardening counts a new rule's failures from this time: failures of the probes above must not count.
  const since = findFirstTimes(manifests, before?.since ?? {});
  const probed = countProbes(before, entries);
  // The release is written before the entries are applied: an interrupted update may have applied some of them.
  const { kubernetes, unapplied = [] } = cluster.policySupport ?? {};
  const policies = kubernetes && unapplied.length > 0 ? { policies: { kubernetes, unapplied } } : {};
  const at = new Date().toISOString();
  await record({ at, keyVersion, signer, hardened: failClosedRules, since, probed, ...policies, manifests });
  await progress.step(`cluster ${name}: entries`, async () => {
    if (api === undefined) return writeClusterFiles(targets, name, manifests);
    const changes = await applyWantedObjectsToCluster(api, wanted, webhookConfigurationName);
    const remaining = await findDifferences(api, wanted, webhookConfigurationName);
    const failing = await probeForFailingEntries(dropVariantEntries(entries));
    if (remaining.length + failing.length > 0)
      throw new Complaint(
        `cluster ${name} failed its checks after the update, and later clusters were not updated:\n${[...remaining, ...failing].map(({ sentence }) => sentence).join("\n")}`,
        1,
      );
    return changes.length === 0 ? "nothing to change" : `${formatCount(changes.length, "object")} changed`;
  });
  if (listFunctionGroups(before?.manifests).length === 0) return;
  const deleted = await deleteAccessEntries(targets, name, manifests, outputs);
  if (deleted > 0) progress.say(`cluster ${name}: access entries: ${deleted} deleted`);
};

/**
 * Tests whether the API server applies policies: some API servers accept a policy of a kind but never apply it. Returns
 * the config of the cluster with these kinds. Policies of these kinds get webhook entries.
 */
const probePolicySupport = async (
  { catalogue, progress }: DeploymentTargets,
  api: ClusterApi,
  cluster: ClusterConfig,
): Promise<ClusterConfig> => {
  const { policySupport } = cluster;
  const isNative = (kind: PolicyKind) =>
    buildNativePolicies(catalogue, cluster, webhookConfigurationName).some((object) => toMap(object).kind === kind);
  const kinds = (["MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"] as const).filter(isNative);
  if (policySupport === undefined || kinds.length === 0) return cluster;
  const unapplied: PolicyKind[] = [];
  await progress.step(`cluster ${api.cluster}: policies`, async () => {
    for (const kind of kinds) if (!(await probePolicies(api, kind, webhookConfigurationName))) unapplied.push(kind);
    return unapplied.length === 0
      ? "the API server applies them"
      : `the Lambda evaluates them, because the API server doesn't apply a new ${unapplied.join(" or ")}`;
  });
  return { ...cluster, policySupport: { ...policySupport, unapplied } };
};

/** Deployments probe an entry three times: when its rule's alias moves, and before and after it is applied. */
const probesPerDeployment = 3;

/** Counts, by rule, Postern's own probes. They aren't among the reviews that a rule needs to get failurePolicy Fail. */
const countProbes = (before: ReleasedCluster | undefined, entries: WebhookEntry[]): Record<string, number> => {
  const probes: Record<string, number> = { ...before?.probed };
  for (const entry of entries) {
    const rule = getRuleNameOfEntry(entry) ?? "";
    probes[rule] = (probes[rule] ?? 0) + probesPerDeployment;
  }
  return probes;
};

/** Returns since when each rule has webhook entries in the cluster: the recorded time, or now if the rule is new. */
const findFirstTimes = (manifests: DeployedObject[], before: Record<string, string>): Record<string, string> => {
  const now = new Date().toISOString();
  return Object.fromEntries(listCalledRules(manifests).map((rule) => [rule, before[rule] ?? now]));
};
