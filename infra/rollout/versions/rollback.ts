import { isDeepStrictEqual } from "node:util";
import type { AwsStage } from "../../aws/stage.ts";
import { Complaint, toSentence } from "../../cli/complaint.ts";
import { formatCount, type Progress, runInParallel } from "../../cli/progress.ts";
import type { DeployedObject } from "../../clusters/api.ts";
import { applyRbacObjects, applyWantedObjectsToCluster } from "../../clusters/apply.ts";
import { probeForFailingEntries } from "../../clusters/probe.ts";
import { ruleLabel } from "../../webhooks/native-policies.ts";
import { createAccessEntries, listFunctionGroups } from "../clusters/access-entries.ts";
import {
  insertKeyIntoUrls,
  listCalledRules,
  listEntries,
  webhookConfigurationName,
} from "../clusters/cluster-manifests.ts";
import { type FunctionState, readFunctionState, requireRollbackTarget, rollBackAlias } from "../clusters/disarm.ts";
import { readKeyring } from "../stage/keyring.ts";
import { getPersonOrPipelineName, lockStage } from "../stage/lock.ts";
import { type DeploymentTargets, openTargetCluster, requireOwnEntries } from "../targets.ts";
import { findOrphanedEntries, toAnsweringVersion } from "./orphans.ts";
import {
  getAcceptedKeyVersions,
  listReleasedClusters,
  listReleasedVersions,
  type Release,
  type ReleasedRule,
  type ReleaseStore,
  readReleaseStore,
  requireRelease,
  requireRollbackRelease,
} from "./releases.ts";
import { describeColdVersion } from "./warm.ts";

const atOnce = 5;

/**
 * Returns the releases. If they can't be read, reports that and returns undefined: a command for a single rule can do
 * without the releases.
 */
export const tryReadReleaseStore = async (
  { openStageBucket: openBucket }: AwsStage,
  progress: Progress,
): Promise<ReleaseStore | undefined> =>
  readReleaseStore(openBucket).catch((error) => {
    progress.say(`the releases can't be read: ${toSentence(error)}`);
    return undefined;
  });

/**
 * Rolls back one rule: `to` is a version such as 12, or a release such as r7, or undefined for the previous version.
 * Returns the version that is live then.
 */
export const rollBackOne = async (
  stage: AwsStage,
  rule: string,
  to: string | undefined,
  progress: Progress,
): Promise<string> => {
  const releases = await tryReadReleaseStore(stage, progress);
  const all = releases?.all ?? [];
  const [newest] = all;
  const isRelease = to !== undefined && /^r\d+$/.test(to);
  if (to !== undefined && !isRelease && !/^\d+$/.test(to))
    throw new Complaint(`--to takes a release or a version, for instance r7 or 12, not "${to}"`);
  const requested = isRelease ? getReleasedVersion(requireRelease(all, to), rule) : to;
  const released = all.length === 0 ? undefined : listReleasedVersions(all, rule);
  const { previous, weights, version: live } = await readFunctionState(stage.functions, rule, released);
  // A rollback during a canary ends the canary and keeps the main version.
  const wanted = requested ?? (Object.keys(weights).length > 0 ? live : previous);
  const releasedRule = wanted === undefined ? undefined : findReleasedRule(all, rule, wanted);
  if (newest && releasedRule) requireWebhooksAnswered(newest, rule, releasedRule);
  // The version must accept all key versions that are accepted now, because webhooks have such keys in their URLs.
  const rollbackConfig = releasedRule?.share; // the version's rule config, with the key versions that it accepts
  const recordedKeyVersions = newest && rollbackConfig && { inUse: getAcceptedKeyVersions(newest), rollbackConfig };
  const version = await rollBackAlias(stage.functions, rule, wanted, {
    releasedVersions: released,
    recordedKeyVersions,
  });
  const lastReleased = newest?.rules[rule];
  if (releases && newest && lastReleased && releasedRule && lastReleased.version !== version) {
    const earlier = [...new Set([lastReleased.version, ...lastReleased.earlier])].filter(
      (candidate) => candidate !== version,
    );
    const rules = { ...newest.rules, [rule]: { ...releasedRule, earlier } };
    // `like` is the older release that `newest` has restored. The new release has another version, so it lacks `like`.
    const { like: _, ...newestWithoutLike } = newest;
    await saveRelease(
      releases,
      { ...newestWithoutLike, rules, withdrawn: [`${rule}@${lastReleased.version}`] },
      progress,
    );
  }
  const cold = await describeColdVersion(stage.functions, rule, version);
  if (cold !== undefined) progress.say(`${cold}; postern deploy starts them`);
  const natives = describeNativePolicies(newest, rule);
  if (natives !== undefined) progress.say(`${natives}; postern rollback --all rolls them back`);
  return version;
};

/**
 * Names the clusters whose API servers evaluate policies of a rule: a rollback of the rule's function changes nothing
 * there.
 */
export const describeNativePolicies = (newest: Release | undefined, rule: string): string | undefined => {
  const isNative = ({ metadata }: DeployedObject) => metadata.labels?.[ruleLabel] === rule;
  const clusters = listReleasedClusters(newest).filter(([, { manifests }]) => manifests.some(isNative));
  if (clusters.length === 0) return undefined;
  return `policies of ${rule} that API servers evaluate stay as they are in ${clusters.map(([name]) => name).join(", ")}`;
};

const getReleasedVersion = ({ id, rules }: Release, rule: string): string => {
  const found = rules[rule];
  if (found === undefined) throw new Complaint(`release r${id} has no ${rule}`);
  return found.version;
};

const findReleasedRule = (all: Release[], rule: string, version: string): ReleasedRule | undefined =>
  all.find(({ rules }) => rules[rule]?.version === version)?.rules[rule];

/** Throws if a cluster has an entry for the rule that the version `to` would not answer. */
const requireWebhooksAnswered = (newest: Release, rule: string, to: ReleasedRule) => {
  const versions = new Map([[rule, toAnsweringVersion(to)]]);
  for (const [name, recorded] of listReleasedClusters(newest)) {
    const [orphan] = findOrphanedEntries(name, recorded, versions);
    if (orphan)
      throw new Complaint(
        // For instance: version 12 of a-rule doesn't mutate, but cluster shop still calls …
        `version ${to.version} of ${rule} ${orphan.why}, but cluster ${name} still calls its webhook entry ${orphan.entry}, so it was not rolled back; postern rollback --all deletes that entry first, and postern disarm makes the rule allow everything`,
        1,
      );
  }
};

/**
 * Rolls back all rules and clusters to the release `to`, or to the release before the live one. Returns a new release.
 */
export const rollBackAll = async (
  targets: Omit<DeploymentTargets, "harden">,
  to: string | undefined,
): Promise<Release> =>
  // This takes the lock even from a running deployment, which then stops before its next change.
  lockStage(targets.stage, "postern rollback --all", () => restoreRelease(targets, to), { overriding: true });

/** Restores the release `to`, by default the last one that was good, and returns it as a new release. */
const restoreRelease = async (targets: Omit<DeploymentTargets, "harden">, to: string | undefined): Promise<Release> => {
  const { stage, progress } = targets;
  const releases = await readReleaseStore(stage.openStageBucket);
  const [newest] = releases.all;
  if (newest === undefined) throw new Complaint("nothing was released yet", 1);
  const deployedRules = await stage.functions.listRules();
  const faults: string[] = [];
  const found = await runInParallel(atOnce, deployedRules, (rule) =>
    readFunctionState(stage.functions, rule).catch((error) => {
      // A broken rule must not prevent the rollback of the others.
      faults.push(toSentence(error));
      return undefined;
    }),
  );
  const readable = found.filter((state) => state !== undefined);
  const differsFromRelease = readable.some(
    ({ rule, ruleVersion }) => (newest.rules[rule]?.version ?? ruleVersion.version) !== ruleVersion.version,
  );
  // If live versions differ from the newest release, a deployment has stopped before its end. The newest release then
  // records the versions that were live before this deployment.
  const findLastGoodRelease = () =>
    differsFromRelease ? findReleaseBeforeMoves(releases.all, newest) : requireRollbackRelease(releases.all);
  const restored = to === undefined ? findLastGoodRelease() : requireRelease(releases.all, to);
  const states = readable.filter(({ rule }) => Object.hasOwn(restored.rules, rule));
  // This checks every rule's version before the alias of any rule is moved.
  const inUse = getAcceptedKeyVersions(newest);
  for (const state of states) {
    const rollbackConfig = restored.rules[state.rule]?.share;
    const recordedKeyVersions = rollbackConfig && { inUse, rollbackConfig };
    requireRollbackTarget(state, getReleasedVersion(restored, state.rule), { recordedKeyVersions });
  }
  const lost = Object.values(restored.clusters).flatMap(({ manifests }) =>
    listCalledRules(manifests).filter((rule) => !deployedRules.includes(rule)),
  );
  if (lost[0] !== undefined)
    throw new Complaint(
      `release r${restored.id} has entries for ${lost[0]}, whose function doesn't exist any more; run postern deploy instead`,
      1,
    );
  const release: Release = {
    ...newest,
    like: restored.like ?? restored.id,
    rules: { ...newest.rules, ...restored.rules },
  };
  if (restored.id === newest.id) delete release.like;
  const served = new Map(
    Object.entries(restored.rules).map(([rule, released]) => [rule, toAnsweringVersion(released)] as const),
  );
  // These clusters are updated before aliases move: they have entries that the restored versions don't answer.
  const early = listReleasedClusters(newest).flatMap(([name, recorded]) =>
    findOrphanedEntries(name, recorded, served).length > 0 ? [name] : [],
  );
  const unchosen = early.find((name) => !targets.clusters.includes(name));
  if (unchosen !== undefined)
    throw new Complaint(
      `cluster ${unchosen} has entries that release r${restored.id} doesn't answer; roll back that cluster, too, by leaving out --cluster`,
      1,
    );
  const failures = await applyRelease(targets, release, restored, early);
  if (failures.length > 0) {
    // Webhook entries may already be deleted from some clusters; the release must record that.
    await releases
      .save({ ...newest, clusters: release.clusters })
      .catch((error) => progress.say(`the release could not be updated: ${toSentence(error)}`));
    throw new Complaint(
      `nothing was rolled back, because webhook entries that would then get no answer could not be deleted from their clusters:\n${failures.join("\n")}`,
      1,
    );
  }
  await progress.step("aliases", async () => {
    const moved = await runInParallel(atOnce, states, (state) =>
      moveRule(stage, state, getReleasedVersion(restored, state.rule)).catch((error) => {
        faults.push(toSentence(error));
        return false;
      }),
    );
    return `${moved.filter(Boolean).length} moved`;
  });
  for (const rule of newest.warm?.filter((name) => Object.hasOwn(restored.rules, name)) ?? []) {
    const cold = await describeColdVersion(stage.functions, rule, getReleasedVersion(restored, rule));
    if (cold !== undefined) progress.say(`${cold}; postern deploy starts them`);
  }
  const late = targets.clusters.filter((name) => !early.includes(name));
  faults.push(...(await applyRelease(targets, release, restored, late)));
  const withdrawn = Object.entries(newest.rules).flatMap(([rule, { version }]) =>
    restored.rules[rule] === undefined || restored.rules[rule].version === version ? [] : [`${rule}@${version}`],
  );
  const saved = await saveRelease(releases, { ...release, withdrawn }, progress);
  if (faults.length > 0)
    throw new Complaint(`release r${restored.id} could not be restored everywhere:\n${faults.join("\n")}`, 1);
  return saved;
};

/**
 * Returns a release with the versions that were live before aliases were moved. The newest one has them. If it isn't
 * complete, its deployment may have deleted webhook entries before it stopped: the last complete release, which still
 * has these entries, is then returned, if it has the same versions.
 */
const findReleaseBeforeMoves = (all: Release[], newest: Release): Release => {
  const last = all.find(({ complete }) => complete);
  return !newest.complete && last && isDeepStrictEqual(last.rules, newest.rules) ? last : newest;
};

/** Points a rule's alias at a version. Returns false if it points there already. */
const moveRule = async ({ functions }: AwsStage, { rule, live }: FunctionState, version: string): Promise<boolean> => {
  if (live.version === version && Object.keys(live.weights).length === 0) return false;
  await functions.moveAlias(rule, version, live);
  return true;
};

/**
 * Applies the objects of the release `restored` to clusters, and records that in `release`. Skips clusters that are not
 * in both releases, or have the same objects in both. Returns a sentence for each cluster that failed.
 */
const applyRelease = async (
  targets: Omit<DeploymentTargets, "harden">,
  release: Release,
  restored: Release,
  clusterNames: string[],
): Promise<string[]> => {
  const { stage, progress } = targets;
  const changed = clusterNames.filter((name) => {
    const [current, wantedCluster] = [release.clusters[name], restored.clusters[name]];
    if (!current || !wantedCluster) return false;
    return JSON.stringify(current.manifests) !== JSON.stringify(wantedCluster.manifests);
  });
  const failures: string[] = [];
  for (const name of changed) {
    const [current, wantedCluster] = [release.clusters[name], restored.clusters[name]];
    if (current === undefined || wantedCluster === undefined) continue;
    await progress
      .step(`cluster ${name}: entries`, async () => {
        const keyring = await readKeyring(stage.parameters);
        if (keyring === undefined) throw new Complaint("this stage has no keys", 3);
        const wanted = insertKeyIntoUrls(
          wantedCluster.manifests,
          keyring.current.signSegment(name, current.keyVersion),
        );
        const api = await openTargetCluster(targets, name);
        await requireOwnEntries(api, targets);
        const rbacGroups = listFunctionGroups(current.manifests); // each has the rights of one function
        const hasNewRights = listFunctionGroups(wantedCluster.manifests).some((group) => !rbacGroups.includes(group));
        if (hasNewRights) {
          await applyRbacObjects(api, wanted);
          await createAccessEntries(targets, name, wantedCluster.manifests, await stage.stack.readOutputs());
        }
        // Webhook entries that the rollback adds must answer a probe; the cluster already calls the others.
        const presentNames = new Set(listEntries(current.manifests).map((entry) => entry.name));
        const added = listEntries(wanted).filter((entry) => !presentNames.has(entry.name));
        const failing = await probeForFailingEntries(added, { functionHasNewRights: hasNewRights });
        if (failing.length > 0) throw new Complaint(failing.map(({ sentence }) => sentence).join("; "), 1);
        const changes = await applyWantedObjectsToCluster(api, wanted, webhookConfigurationName);
        const signer = keyring.current.publicKey;
        release.clusters = {
          ...release.clusters,
          [name]: { ...wantedCluster, keyVersion: current.keyVersion, signer },
        };
        return `${formatCount(changes.length, "object")} changed`;
      })
      .catch((error) => failures.push(toSentence(error)));
  }
  return failures;
};

/** Saves the state after a rollback as a new release. If that fails, reports it; the rollback stays. */
const saveRelease = async (releases: ReleaseStore, release: Release, progress: Progress): Promise<Release> => {
  const id = (releases.all[0]?.id ?? 0) + 1;
  const next = { ...release, id, at: new Date().toISOString(), by: getPersonOrPipelineName(), complete: true };
  await releases.save(next).catch((error) => progress.say(`release r${id} could not be saved: ${toSentence(error)}`));
  return next;
};
