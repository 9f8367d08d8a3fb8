import { setTimeout as wait } from "node:timers/promises";
import type { AwsStage } from "../aws/stage.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { formatCount, type Progress } from "../cli/progress.ts";
import { deletePosternObjects, findEntriesCallingUrls } from "../clusters/apply.ts";
import { deleteAccessEntries } from "./clusters/access-entries.ts";
import { webhookConfigurationName } from "./clusters/cluster-manifests.ts";
import { readKeyring } from "./stage/keyring.ts";
import { lockObjectKey, lockStage, type StageLock } from "./stage/lock.ts";
import {
  type Destruction,
  formatStageContents,
  readStageContents,
  type StageContents,
} from "./stage/stage-contents.ts";
import { type DeploymentTargets, listBaseUrls, openTargetCluster, requireOwnEntries } from "./targets.ts";
import { readReleaseStore } from "./versions/releases.ts";

/** What `postern destroy` deletes. */
interface DestroyOptions extends Destruction, Pick<DeploymentTargets, "file" | "deployer"> {
  /** If set, only the webhook configurations of these clusters are deleted, and nothing in AWS. */
  onlyEntriesOfClusters?: string[] | undefined;
  /** The base URL in webhook entries if it is not the API gateway's own. */
  url?: string | undefined;
  /** Milliseconds that API servers may take to stop calling deleted entries. */
  noticeMilliseconds?: number;
}

/** Deletes a stage, or only the entries of some clusters. Returns what was deleted and what was kept, in lines. */
export const destroyStage = async (options: DestroyOptions): Promise<string> => {
  const { stage, onlyEntriesOfClusters, config, forgotten, withData } = options;
  if (onlyEntriesOfClusters) {
    await deleteEntries(options, onlyEntriesOfClusters);
    await forgetClusters(options, onlyEntriesOfClusters);
    return `${onlyEntriesOfClusters.join(", ")} ${onlyEntriesOfClusters.length === 1 ? "has" : "have"} no entries of this stage any more`;
  }
  const destroy = async (lock: StageLock) => {
    const { all: releases } = await readReleaseStore(stage.openStageBucket); // the newest first
    const contents = await readStageContents(options);
    const isThere =
      releases.length > 0 ||
      (await stage.stack.readStatus()) !== undefined ||
      (await readKeyring(stage.parameters)) ||
      (withData && (contents.hasTable || contents.logGroups.length > 0));
    if (!isThere) throw new Complaint(`there is no stage ${stage.name}: neither a stack nor keys`, 1);
    const unknown = Object.keys(releases[0]?.clusters ?? {}).filter((name) => !config.clusters.has(name));
    const unreachable = unknown.filter((name) => !forgotten.includes(name));
    if (unreachable.length > 0)
      throw new Complaint(
        `${unreachable.join(", ")} ${unreachable.length === 1 ? "has" : "have"} entries for these rules, and postern.yaml doesn't say how to reach ${unreachable.length === 1 ? "it" : "them"}; use --forget NAME for a cluster that doesn't exist any more`,
        1,
      );
    const names = [...config.clusters.keys()].filter((name) => !forgotten.includes(name));
    await deleteEntries(options, names);
    await requireNoEntries(options, names);
    if (names.length > 0) await wait(options.noticeMilliseconds ?? 10_000); // until API servers notice the deletion
    // Lambda may refuse to delete a version that has warm environments.
    for (const rule of releases[0]?.warm ?? [])
      for (const { version } of await stage.functions.listWarmVersions(rule))
        await stage.functions.releaseWarmEnvironments(rule, version);
    // Data is deleted before the stack, whose bucket has the lock: later, another deployment could use the data.
    if (withData) await deleteData(options, contents);
    await removeAws(stage, options.progress, lock);
    return `stage ${stage.name} is deleted\n${formatStageContents(options, contents)}`;
  };
  return lockStage(stage, "postern destroy", destroy, { mayLackBucket: true });
};

/** The maximum milliseconds to wait for AWS, so that webhook entries can be deleted also while AWS doesn't answer. */
const awsTimeout = 10_000;

/** Removes clusters from the newest release, so that later deployments don't check their webhook entries any more. */
const forgetClusters = async ({ stage, progress }: DestroyOptions, names: string[]) => {
  const saveRelease = async () => {
    const releases = await readReleaseStore(stage.openStageBucket);
    const [newest] = releases.all;
    if (newest === undefined || !names.some((name) => Object.hasOwn(newest.clusters, name))) return;
    const clusters = Object.fromEntries(Object.entries(newest.clusters).filter(([name]) => !names.includes(name)));
    await releases.save({ ...newest, clusters });
  };
  const late = wait(awsTimeout, undefined, { ref: false }).then(() => {
    throw new Error("AWS doesn't answer in time");
  });
  await Promise.race([saveRelease(), late]).catch((error) =>
    progress.say(`the release could not be updated: ${toSentence(error)}`),
  );
};

/** Deletes the stage's webhook configurations, policies, roles and EKS access entries in clusters. */
const deleteEntries = async (options: DestroyOptions, names: string[]) => {
  const failures: string[] = [];
  for (const name of names)
    await options.progress
      .step(`cluster ${name}`, async () => {
        const api = await openTargetCluster(options, name);
        await requireOwnEntries(api, options);
        const removed = await deletePosternObjects(api, webhookConfigurationName);
        const access = await deleteAccessEntries(options, name).catch((error) => {
          // --configs-only must work while AWS is down. The webhook configurations are deleted already.
          if (options.onlyEntriesOfClusters === undefined) throw error;
          options.progress.say(`cluster ${name}: its access entries could not be deleted: ${toSentence(error)}`);
          return 0;
        });
        const count = removed.length + access;
        return count === 0 ? "nothing to delete" : `${formatCount(count, "object")} deleted`;
      })
      // A cluster that can't be reached must not prevent the deletion in the others.
      .catch((error) => failures.push(toSentence(error)));
  if (failures.length > 0) throw new Complaint([...new Set(failures)].join("\n"), 1);
};

/** Throws if webhooks that destroy doesn't delete (handmade, or not with Postern's name) still call the stage. */
const requireNoEntries = async (options: DestroyOptions, clusterNames: string[]) => {
  const bases = listBaseUrls(await options.stage.stack.readOutputs(), options.url);
  for (const name of clusterNames) {
    const remaining = await findEntriesCallingUrls(await openTargetCluster(options, name), bases);
    if (remaining.length > 0)
      throw new Complaint(
        `cluster ${name} still calls this stage: ${remaining.map(({ kind, name, entry }) => `${entry} of the ${kind} ${name}`).join(", ")}; delete that first`,
        1,
      );
  }
};

/** Deletes what stays when the stack is deleted: the table with the ledger, and the log groups. */
const deleteData = async (
  { stage: { ledger, logGroups: groups }, progress }: DestroyOptions,
  { hasTable, logGroups }: StageContents,
) => {
  if (hasTable)
    await progress.step("ledger", async () =>
      (await ledger.remove()) ? `the table ${ledger.name} is deleted` : "none",
    );
  if (logGroups.length === 0) return;
  await progress.step("logs", async () => {
    for (const group of logGroups) await groups.remove(group);
    return `${formatCount(logGroups.length, "log group")} deleted`;
  });
};

/**
 * Deletes the keys, the content of the bucket, and the stack. The lock is the bucket's last object. It is deleted just
 * before the stack, because CloudFormation deletes only empty buckets.
 */
const removeAws = async (stage: AwsStage, progress: Progress, lock: StageLock) => {
  const { stack, parameters } = stage;
  await parameters.remove("keys");
  if ((await stack.readStatus()) === undefined) return;
  await progress.step("stack", async () => {
    await (await stage.openStageBucket())?.empty(lockObjectKey);
    await lock.check();
    await lock.release();
    await stack.remove();
    return "removed";
  });
};
