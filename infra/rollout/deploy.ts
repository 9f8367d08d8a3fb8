import { setTimeout as wait } from "node:timers/promises";
import { logGroupType, pollWhile, replacePackagedTemplate, requireChangeableStack } from "../aws/stack.ts";
import type { AwsStage } from "../aws/stage.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { formatCount, runInParallel } from "../cli/progress.ts";
import { applyWantedObjectsToCluster } from "../clusters/apply.ts";
import { listRulesAskingCluster } from "../config/connections.ts";
import { requireAccessEntryRights } from "./clusters/access-entries.ts";
import { insertKeyIntoUrls, listEntries, webhookConfigurationName } from "./clusters/cluster-manifests.ts";
import { updateCluster } from "./clusters/cluster-update.ts";
import { listFilesOfOtherClusters, writeClusterFiles } from "./clusters/written-files.ts";
import { changesNothing, type DeploymentPlan } from "./plan/plan.ts";
import { formatDifferences } from "./plan/plan-report.ts";
import {
  type DeploymentJob,
  maxParallelFunctionChanges,
  type PreparedDeployment,
  prepareDeployment,
} from "./preparation.ts";
import { readOrCreateKeyring, toPublicKeys } from "./stage/keyring.ts";
import { completeLedger } from "./stage/ledger-table.ts";
import {
  getPersonOrPipelineName,
  lockStage,
  requireNotInterrupted,
  type StageLock,
  stopWaitingWhenInterrupted,
} from "./stage/lock.ts";
import { openTargetCluster, requireOwnEntries } from "./targets.ts";
import { moveEveryAlias } from "./versions/deploy-aliases.ts";
import { publishVersions } from "./versions/new-versions.ts";
import { findOrphanedEntries, type OrphanedWebhookEntry, removeOrphanedEntries } from "./versions/orphans.ts";
import { packageStage } from "./versions/package.ts";
import { listReleasedClusters, type Release } from "./versions/releases.ts";
import { startWarmEnvironments, stopUnusedWarmEnvironments } from "./versions/warm.ts";

/** The number of earlier live versions that are kept for each rule. */
const keptVersions = 4;

/** Returns what a deployment would change. Doesn't read the key that signs URLs, or the webhook entries in clusters. */
export const planDeployment = async (job: DeploymentJob, build = packageStage): Promise<DeploymentPlan> => {
  const { plan } = await prepareDeployment(job, undefined, build);
  return { ...plan, notes: [...plan.notes, ...(job.clusters.length > 0 ? [comparisonNote] : [])] };
};

const comparisonNote =
  "clusters: compared with the entries that were deployed last; postern status compares them with the cluster itself";

/** Deploys a stage. If it can't undo what was changed in AWS by hand, throws at the end, with commands that undo it. */
export const deployStage = async (
  job: DeploymentJob,
  show: (plan: DeploymentPlan) => Promise<void>,
  build = packageStage,
): Promise<string> => {
  const prepare = async () => prepareDeployment(job, await readOrCreateKeyring(job.stage.parameters), build);
  await stopWaitingWhenInterrupted(createStageBucket(job), job.signal);
  const act = async (lock: StageLock) => {
    const prepared = await stopWaitingWhenInterrupted(prepare(), job.signal);
    await show(prepared.plan);
    const result = await (changesNothing(prepared.plan) ? completeRelease(prepared) : rollOut(prepared, lock));
    const unrepaired = prepared.plan.differences.filter(({ command }) => command !== undefined);
    if (unrepaired.length === 0) return result;
    const lines = [`${result}, but AWS is not as it was deployed:`, ...formatDifferences(unrepaired)];
    throw new Complaint(lines.join("\n"), 1);
  };
  return lockStage(job.stage, "postern deploy", act, { signal: job.signal });
};

/**
 * Creates a new stage's bucket, but first throws if the deployment would fail later. The bucket has the stage's lock:
 * if several commands find no stack, only one of them can create the bucket. If the bucket of an existing stack was
 * deleted by hand, it is created again.
 */
const createStageBucket = async (job: DeploymentJob) => {
  const { stack, openStageBucket } = job.stage;
  const { progress } = job;
  const status = await stack.readStatus();
  const isNew = status === undefined || status === "CREATE_IN_PROGRESS";
  if (isNew) {
    await requireNoOtherStage(job);
    for (const name of job.clusters)
      if (listRulesAskingCluster(job.catalogue, job.config.clusters.get(name)).length > 0)
        await requireAccessEntryRights(job, name);
    await progress.step("bucket", async () => {
      await stack.createBucket();
      return "created";
    });
  } else if (await (await openStageBucket())?.restore())
    progress.say("the bucket of this stage was deleted, with all its releases; it is created again");
};

/**
 * Throws if a cluster has webhook entries of another stage: the credentials are then wrong, and nothing is created.
 * With --write, the clusters' entries aren't read.
 */
const requireNoOtherStage = async (job: DeploymentJob) => {
  if (job.write !== undefined) return;
  for (const name of job.clusters) await requireOwnEntries(await openTargetCluster(job, name), job);
};

/** Ends a deployment without changes: marks the newest release complete and, with --write, writes the files again. */
const completeRelease = async ({ job, releases }: PreparedDeployment): Promise<string> => {
  const [newest] = releases.all;
  if (newest && !newest.complete && isForAllClusters(job)) await releases.save({ ...newest, complete: true });
  if (job.write !== undefined)
    for (const name of job.clusters)
      await job.progress.step(`cluster ${name}: entries`, () =>
        writeClusterFiles(job, name, newest?.clusters[name]?.manifests ?? []),
      );
  await reportWrittenFilesOfRemovedClusters(job);
  return `nothing to do: release r${newest?.id ?? 0} is live`;
};

/** With --write, reports files of an earlier `deploy --write` for clusters that postern.yaml doesn't name any more. */
const reportWrittenFilesOfRemovedClusters = async (job: DeploymentJob) => {
  if (job.write === undefined) return;
  for (const file of await listFilesOfOtherClusters(job))
    job.progress.say(`${file} is of a cluster that postern.yaml doesn't name: delete it if you don't need it`);
};

/**
 * Deploys in this order: repairs, ledger, stack, versions, warm environments, orphans, aliases, clusters. Orphans are
 * webhook entries that the new versions won't answer; if one may not be deleted, throws before the first step. If a
 * step fails, the steps after it don't run.
 */
export const rollOut = async (prepared: PreparedDeployment, lock: StageLock): Promise<string> => {
  const { job, plan, releases } = prepared;
  if (plan.limits.length > 0) throw new Complaint(plan.limits.join("\n"), 1);
  const unreachable = plan.clusters.find(({ unknown }) => unknown !== undefined);
  if (unreachable?.unknown !== undefined) throw new Complaint(unreachable.unknown, 3);
  const orphans = findOrphanedByCluster(prepared);
  /** Throws if the user has interrupted the command, or if another command has the lock. */
  const requireMayContinue = async () => {
    requireNotInterrupted(job.signal);
    await lock.check();
  };
  await repairDifferences(prepared);
  await requireMayContinue();
  await completeLedger(job.stage, plan.ledger, job.progress);
  await requireMayContinue();
  await deployStack(prepared);
  await requireMayContinue();
  const versions = await publishVersions(prepared);
  await requireMayContinue();
  // The release is saved before any alias moves, with the versions that are live now. If saving fails, no alias moves.
  const draft = { ...buildRelease(prepared, new Map()), rules: releases.all[0]?.rules ?? {} };
  await releases.save(draft);
  const goLive = async () => {
    await startWarmEnvironments(prepared, versions, requireMayContinue);
    await deleteOrphans(prepared, draft, orphans);
    return moveEveryAlias(prepared, versions, draft.clusters);
  };
  const { live, stuck } = await goLive().catch(async (error) => {
    // Versions that were or are live keep their warm environments. Those of the other new versions are stopped.
    await stopUnusedWarmEnvironments(prepared);
    throw error;
  });
  const release = { ...buildRelease(prepared, live), id: draft.id, clusters: draft.clusters };
  await releases.save(release);
  if (stuck.length > 0) {
    await stopUnusedWarmEnvironments(prepared, live);
    throw new Complaint(
      `the webhook entries in clusters were not changed, because the new versions of these rules did not pass the canary: ${stuck.join(", ")}`,
      1,
    );
  }
  await updateClusters(prepared, release, requireMayContinue);
  await reportWrittenFilesOfRemovedClusters(job);
  const warm = await stopUnusedWarmEnvironments(prepared, live);
  // If an earlier deployment of this release stopped, clusters that this deployment leaves out may lack the release.
  const isUnfinished = releases.all[0]?.complete === false && !isForAllClusters(job);
  await releases.save({ ...release, warm, complete: !isUnfinished });
  await deleteOldVersions(prepared, release);
  const where = job.clusters.length === 0 ? "" : ` in ${job.clusters.join(", ")}`;
  return `release r${release.id} is live${where}`;
};

/** Repairs what someone changed in AWS by hand since the last deployment. */
const repairDifferences = async ({ job, plan: { differences } }: PreparedDeployment) => {
  const repairs = differences.flatMap(({ repair }) => repair ?? []);
  if (repairs.length === 0) return;
  await job.progress.step("changed in AWS", async () => {
    // One after the other: an alias must exist before its permissions are added.
    for (const repair of repairs) await repair();
    return `${repairs.length} repaired`;
  });
};

const isForAllClusters = ({ config, clusters }: DeploymentJob) =>
  [...config.clusters.keys()].every((name) => clusters.includes(name));

/** Finds, by cluster, the webhook entries that the new versions won't answer. Throws if they can't be deleted. */
const findOrphanedByCluster = ({ job, plan, releases }: PreparedDeployment): Map<string, OrphanedWebhookEntry[]> => {
  const orphansByCluster = new Map<string, OrphanedWebhookEntry[]>();
  const newVersions = new Map(
    plan.parts.map(({ part: { name, listed, config } }) => [name, { phases: listed.phases, config }]),
  );
  for (const [name, recorded] of listReleasedClusters(releases.all[0])) {
    if (listEntries(recorded.manifests).length === 0 || job.forgotten?.includes(name)) continue;
    if (!job.config.clusters.has(name))
      throw new Complaint(
        `cluster ${name} still has webhook entries of this stage, but postern.yaml doesn't name it any more: add it there and run postern destroy --configs-only --cluster ${name}, or if the cluster doesn't exist any more, run postern deploy --forget ${name}`,
        1,
      );
    const orphans = findOrphanedEntries(name, recorded, newVersions);
    const [first] = orphans;
    if (first === undefined) continue;
    const sentence = `cluster ${name} calls ${first.entry}, and its new version ${first.why}`;
    if (first.isKeyRefused) throw new Complaint(`${sentence}; postern rotate --cluster ${name} replaces its key`, 1);
    if (!job.clusters.includes(name))
      throw new Complaint(
        `${sentence}; deploy to cluster ${name}, too: the deployment then deletes this entry first`,
        1,
      );
    orphansByCluster.set(name, orphans);
  }
  return orphansByCluster;
};

/**
 * Deletes the webhook entries that the new versions won't answer, before any alias moves to these versions. With
 * --write, the deployment ends here, because a user must first apply the files, which lack these entries.
 */
const deleteOrphans = async (
  { job, releases, keyring }: PreparedDeployment,
  release: Release,
  orphans: Map<string, OrphanedWebhookEntry[]>,
) => {
  for (const [name, orphanedEntries] of orphans) {
    const recorded = release.clusters[name];
    if (recorded === undefined || keyring === undefined) continue;
    await job.progress.step(`cluster ${name}: obsolete entries`, async () => {
      const manifests = removeOrphanedEntries(recorded.manifests, orphanedEntries);
      if (job.write !== undefined) await writeClusterFiles(job, name, manifests, ["entries"]);
      else
        await applyWantedObjectsToCluster(
          await openTargetCluster(job, name),
          insertKeyIntoUrls(manifests, keyring.current.signSegment(name, recorded.keyVersion)),
          webhookConfigurationName,
        );
      const signer = keyring.current.publicKey;
      release.clusters = { ...release.clusters, [name]: { ...recorded, signer, manifests } };
      await releases.save(release);
      return orphanedEntries.map(({ entry, phase }) => `${entry}/${phase}`).join(", ");
    });
  }
  if (orphans.size === 0) return;
  if (job.write !== undefined)
    throw new Complaint(
      `no new version is live yet, because clusters still call entries that it doesn't answer: apply the files in ${job.write}, which lack these entries, and then run the command again`,
      1,
    );
  await wait(noticeMilliseconds); // until API servers notice that entries are deleted
};

/** Milliseconds that API servers may take to stop calling a deleted entry. */
const noticeMilliseconds = 1000;

/** Creates or updates the CloudFormation stack, unless the plan changes nothing in it. */
const deployStack = async ({ job, plan }: PreparedDeployment) => {
  const { added, changed, removed, isNew } = plan.stack;
  const total = added.length + changed.length + removed.length;
  if (!isNew && total === 0) return;
  const { stack } = job.stage;
  requireChangeableStack(plan.identity.stage, await stack.readStatus());
  await job.progress.step("stack", async (tell) => {
    await takeOverLogGroups(job.stage, plan);
    await replacePackagedTemplate(plan.template);
    const start = new Date();
    await pollWhile(stack.deploy(), async () => tell(await stack.countDone(start), total));
    return `${formatCount(total, "resource")} ${isNew ? "created" : "changed"}`;
  });
};

/** Imports log groups into the new stack: `postern destroy` keeps the log groups of the stage that it deletes. */
const takeOverLogGroups = async ({ stack, logGroups }: AwsStage, { stack: { added }, template }: DeploymentPlan) => {
  const selectExisting = async (id: string) => {
    const { Type, Properties } = template.Resources[id] ?? {};
    return Type === logGroupType && (await logGroups.exists(String(Properties?.LogGroupName))) ? [id] : [];
  };
  const existing = (await Promise.all(added.map(selectExisting))).flat();
  if (existing.length > 0) await stack.importLogGroups(existing, template);
};

/** Returns the release that a deployment writes. If the newest release isn't complete yet, both have the same id. */
const buildRelease = (
  { job, plan, releases, keyring, publicKeys, refusedClusters, kubernetes }: PreparedDeployment,
  versionsNowLive: Map<string, string>,
): Release => {
  const [newest] = releases.all;
  const rules = plan.parts.map(({ part: { name, logic, config, listed }, known: stateBefore }) => {
    const version = versionsNowLive.get(name) ?? "";
    // Without releases, the history begins with the version that was live before this deployment.
    const last = newest ? newest.rules[name] : stateBefore && { version: stateBefore.ruleVersion.version, earlier: [] };
    // A version that was released before keeps its recorded logic and rule config.
    const recorded = releases.all.find(({ rules }) => rules[name]?.version === version)?.rules[name];
    const earlier = [...new Set([last?.version ?? version, ...(last?.earlier ?? [])])].filter((id) => id !== version);
    // Stored releases call the rule config `share`.
    const current = { version, logic, share: config, phases: listed.phases };
    return [name, { ...(recorded ?? current), earlier: earlier.slice(0, keptVersions) }] as const;
  });
  const clusters = Object.entries(newest?.clusters ?? {}).filter(([name]) => !job.forgotten?.includes(name));
  const isUnfinished = newest !== undefined && !newest.complete;
  return {
    id: isUnfinished ? newest.id : (newest?.id ?? 0) + 1,
    at: new Date().toISOString(),
    by: getPersonOrPipelineName(),
    complete: false,
    ...(keyring && { keys: { ...toPublicKeys(keyring), accepted: publicKeys } }),
    accepts: Object.fromEntries([...job.config.clusters].map(([name, { keyVersions }]) => [name, keyVersions])),
    refused: refusedClusters, // functions refuse their reviews, because postern.yaml doesn't name them any more
    kubernetes,
    rules: Object.fromEntries(rules),
    warm: plan.warm.map(({ rule }) => rule),
    clusters: Object.fromEntries(clusters),
  };
};

/** Updates clusters in waves of `job.wave`, in parallel within a wave. After a failure, the next wave doesn't begin. */
const updateClusters = async (
  { job, plan, releases, keyring }: PreparedDeployment,
  release: Release,
  requireMayContinue: () => Promise<void>,
) => {
  if (keyring === undefined) throw new Complaint(`stage ${plan.identity.stage} has no keys`, 3);
  const outputs = await job.stage.stack.readOutputs();
  const plans = new Map(plan.clusters.map((clusterPlan) => [clusterPlan.cluster, clusterPlan]));
  // A cluster without differences has its entries already, and the release records them. With --write, the files of all
  // clusters are written.
  const pending = job.clusters.filter((name) => job.write !== undefined || plans.get(name)?.differences.length !== 0);
  for (let first = 0; first < pending.length; first += job.wave) {
    await requireMayContinue();
    const wave = pending.slice(first, first + job.wave);
    await runInParallel(wave.length, wave, async (name) => {
      const update = { name, before: release.clusters[name], failClosedRules: plans.get(name)?.hardened ?? [] };
      await updateCluster(job, { ...update, outputs, keyring }, async (recorded) => {
        release.clusters = { ...release.clusters, [name]: recorded };
        await releases.save(release);
      });
    });
  }
};

/**
 * Deletes old versions. These stay: the first version, versions that the release records, the live version, a version
 * in a canary and, if the live version is disarmed (it allows everything), the version that it replaces.
 */
const deleteOldVersions = async ({ job, plan }: PreparedDeployment, release: Release) => {
  const { functions } = job.stage;
  let pruned = 0;
  await runInParallel(maxParallelFunctionChanges, plan.parts, async ({ part: { name } }) => {
    const [live, versions] = await Promise.all([functions.readAlias(name), functions.listVersions(name)]);
    const kept = new Set([
      versions[0]?.version,
      live.version,
      ...Object.keys(live.weights),
      versions.find(({ version }) => version === live.version)?.environment.DISARMED_VERSION,
      release.rules[name]?.version,
      ...(release.rules[name]?.earlier ?? []),
    ]);
    // Versions later than the live one are kept: another command may be about to point the alias at one of these.
    const isOld = (version: string) => Number(version) < Number(live.version);
    for (const { version } of versions.filter(({ version }) => !kept.has(version) && isOld(version))) {
      await functions.deleteVersion(name, version);
      pruned += 1;
    }
  }).catch((error) => job.progress.say(`old versions could not be deleted: ${toSentence(error)}`));
  if (pruned > 0) job.progress.say(`${formatCount(pruned, "old version")} deleted`);
};
