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
import { findOrphanedEntries } from "./orphans.ts";
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

/** Returns the releases, or undefined if they can't be read: a rollback of one rule works without them. */
export const tryReadReleaseStore = async (
  { openStageBucket: openBucket }: AwsStage,
  progress: Progress,
): Promise<ReleaseStore | undefined> =>
  readReleaseStore(openBucket).catch((error) => {
    progress.say(`the releases can't be read: ${toSentence(error)}`);
    return undefined;
  });

/** Points a rule's alias at a version, at its version in a release, or at the previous one. Returns the version. */
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
  const named = isRelease ? getReleasedVersion(requireRelease(all, to), rule) : to;
  const released = all.length === 0 ? undefined : listReleasedVersions(all, rule);
  const { previous, weights, version: live } = await readFunctionState(stage.functions, rule, released);
  const wanted = named ?? (Object.keys(weights).length > 0 ? live : previous);
  const found = wanted === undefined ? undefined : findReleasedRule(all, rule, wanted);
  if (newest && found) requireNoOrphans(newest, new Map([[rule, found]]), `version ${wanted} of ${rule}`);
  const recorded = newest && found && { inUse: getAcceptedKeyVersions(newest), target: found.share };
  const version = await rollBackAlias(stage.functions, rule, wanted, { released, recorded });
  const last = newest?.rules[rule];
  if (releases && newest && last && found && last.version !== version) {
    const earlier = [...new Set([last.version, ...last.earlier])].filter((candidate) => candidate !== version);
    const rules = { ...newest.rules, [rule]: { ...found, earlier } };
    const { like: _, ...rest } = newest;
    await saveRelease(releases, { ...rest, rules, withdrawn: [`${rule}@${last.version}`] }, progress);
  }
  const cold = await describeColdVersion(stage.functions, rule, version);
  if (cold !== undefined) progress.say(`${cold}; postern deploy starts them`);
  const natives = describeNativePolicies(newest, rule);
  if (natives !== undefined) progress.say(`${natives}; postern rollback --all rolls them back`);
  return version;
};

/** Describes the clusters that evaluate policies of a rule themselves, where moving the rule's alias changes nothing. */
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

const requireNoOrphans = (newest: Release, rules: ReadonlyMap<string, ReleasedRule>, what: string) => {
  for (const [name, recorded] of listReleasedClusters(newest)) {
    const [orphan] = findOrphanedEntries(name, recorded, rules);
    if (orphan)
      throw new Complaint(
        `${what} ${orphan.why}, but cluster ${name} still calls its webhook entry ${orphan.entry}, so it was not rolled back; postern rollback --all deletes that entry first, and postern disarm makes the rule allow everything`,
        1,
      );
  }
};

export const rollBackAll = async (
  targets: Omit<DeploymentTargets, "harden">,
  to: string | undefined,
): Promise<Release> =>
  // Takes the lock even from a deployment: that one notices and stops before its next change.
  lockStage(targets.stage, "postern rollback --all", () => restoreRelease(targets, to), { overriding: true });

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
  const standing = found.filter((state) => state !== undefined);
  const strayed = standing.some(
    ({ rule, ruleVersion }) => (newest.rules[rule]?.version ?? ruleVersion.version) !== ruleVersion.version,
  );
  // Live versions that differ from the newest release mean that a deployment stopped midway. That release records the
  // versions before the deployment.
  const target =
    to !== undefined
      ? requireRelease(releases.all, to)
      : strayed
        ? findReleaseBeforeMoves(releases.all, newest)
        : requireRollbackRelease(releases.all);
  const states = standing.filter(({ rule }) => Object.hasOwn(target.rules, rule));
  // This checks every rule's version before the alias of any rule is moved.
  const inUse = getAcceptedKeyVersions(newest);
  for (const state of states) {
    const share = target.rules[state.rule]?.share;
    const recorded = share && { inUse, target: share };
    requireRollbackTarget(state, getReleasedVersion(target, state.rule), { recorded });
  }
  const lost = Object.values(target.clusters).flatMap(({ manifests }) =>
    listCalledRules(manifests).filter((rule) => !deployedRules.includes(rule)),
  );
  if (lost[0] !== undefined)
    throw new Complaint(
      `release r${target.id} has entries for ${lost[0]}, whose function doesn't exist any more; run postern deploy instead`,
      1,
    );
  const release: Release = { ...newest, like: target.like ?? target.id, rules: { ...newest.rules, ...target.rules } };
  if (target.id === newest.id) delete release.like;
  const served = new Map(Object.entries(target.rules));
  const early = listReleasedClusters(newest).flatMap(([name, recorded]) =>
    findOrphanedEntries(name, recorded, served).length > 0 ? [name] : [],
  );
  const unchosen = early.find((name) => !targets.clusters.includes(name));
  if (unchosen !== undefined)
    throw new Complaint(
      `cluster ${unchosen} has entries that release r${target.id} doesn't answer; roll back that cluster, too, by leaving out --cluster`,
      1,
    );
  const untold = await applyRelease(targets, release, target, early);
  if (untold.length > 0) {
    // Webhook entries may already be deleted from some clusters; the release must record that.
    await releases
      .save({ ...newest, clusters: release.clusters })
      .catch((error) => progress.say(`the release could not be updated: ${toSentence(error)}`));
    throw new Complaint(
      `nothing was rolled back, because webhook entries that would then get no answer could not be deleted from their clusters:\n${untold.join("\n")}`,
      1,
    );
  }
  await progress.step("aliases", async () => {
    const moved = await runInParallel(atOnce, states, (state) =>
      moveRule(stage, state, getReleasedVersion(target, state.rule)).catch((error) => {
        faults.push(toSentence(error));
        return false;
      }),
    );
    return `${moved.filter(Boolean).length} moved`;
  });
  for (const rule of newest.warm?.filter((name) => Object.hasOwn(target.rules, name)) ?? []) {
    const cold = await describeColdVersion(stage.functions, rule, getReleasedVersion(target, rule));
    if (cold !== undefined) progress.say(`${cold}; postern deploy starts them`);
  }
  const late = targets.clusters.filter((name) => !early.includes(name));
  faults.push(...(await applyRelease(targets, release, target, late)));
  const withdrawn = Object.entries(newest.rules).flatMap(([rule, { version }]) =>
    target.rules[rule] === undefined || target.rules[rule].version === version ? [] : [`${rule}@${version}`],
  );
  const saved = await saveRelease(releases, { ...release, withdrawn }, progress);
  if (faults.length > 0)
    throw new Complaint(`release r${target.id} could not be restored everywhere:\n${faults.join("\n")}`, 1);
  return saved;
};

/** Returns the newest release; but the last complete one if the newest deployment ended before it moved any alias. */
const findReleaseBeforeMoves = (all: Release[], newest: Release): Release => {
  const last = all.find(({ complete }) => complete);
  return !newest.complete && last && isDeepStrictEqual(last.rules, newest.rules) ? last : newest;
};

const moveRule = async ({ functions }: AwsStage, { rule, live }: FunctionState, version: string): Promise<boolean> => {
  if (live.version === version && Object.keys(live.weights).length === 0) return false;
  await functions.moveAlias(rule, version, live);
  return true;
};

/** Applies a release's entries to clusters. Returns the failures in sentences. */
const applyRelease = async (
  targets: Omit<DeploymentTargets, "harden">,
  release: Release,
  target: Release,
  names: string[],
): Promise<string[]> => {
  const { stage, progress, clusters } = targets;
  const changed = names.filter((name) => {
    const [now, then] = [release.clusters[name], target.clusters[name]];
    return clusters.includes(name) && now && then && JSON.stringify(now.manifests) !== JSON.stringify(then.manifests);
  });
  const failures: string[] = [];
  for (const name of changed) {
    const [now, then] = [release.clusters[name], target.clusters[name]];
    if (now === undefined || then === undefined) continue;
    await progress
      .step(`cluster ${name}: entries`, async () => {
        const keyring = await readKeyring(stage.parameters);
        if (keyring === undefined) throw new Complaint("this stage has no keys", 3);
        const wanted = insertKeyIntoUrls(then.manifests, keyring.current.signSegment(name, now.keyVersion));
        const api = await openTargetCluster(targets, name);
        await requireOwnEntries(api, targets);
        const groups = listFunctionGroups(now.manifests);
        const hasNewRights = listFunctionGroups(then.manifests).some((group) => !groups.includes(group));
        if (hasNewRights) {
          await applyRbacObjects(api, wanted);
          await createAccessEntries(targets, name, then.manifests, await stage.stack.readOutputs());
        }
        // Webhook entries that the rollback adds must answer a probe; the cluster already calls the others.
        const presentNames = new Set(listEntries(now.manifests).map((entry) => entry.name));
        const added = listEntries(wanted).filter((entry) => !presentNames.has(entry.name));
        const failing = await probeForFailingEntries(added, { hasNewRights });
        if (failing.length > 0) throw new Complaint(failing.map(({ sentence }) => sentence).join("; "), 1);
        const changes = await applyWantedObjectsToCluster(api, wanted, webhookConfigurationName);
        const signer = keyring.current.publicKey;
        release.clusters = { ...release.clusters, [name]: { ...then, keyVersion: now.keyVersion, signer } };
        return `${formatCount(changes.length, "object")} changed`;
      })
      .catch((error) => failures.push(toSentence(error)));
  }
  return failures;
};

/** Saves the present state as a release. A failure is reported but undoes nothing. */
const saveRelease = async (releases: ReleaseStore, release: Release, progress: Progress): Promise<Release> => {
  const id = (releases.all[0]?.id ?? 0) + 1;
  const next = { ...release, id, at: new Date().toISOString(), by: getPersonOrPipelineName(), complete: true };
  await releases.save(next).catch((error) => progress.say(`release r${id} could not be saved: ${toSentence(error)}`));
  return next;
};
