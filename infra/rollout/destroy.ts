import { setTimeout as wait } from "node:timers/promises";
import type { AwsStage } from "../aws/stage.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { formatCount, type Progress } from "../cli/progress.ts";
import { deletePosternObjects, findEntriesCallingUrls } from "../clusters/apply.ts";
import { webhookConfigurationName } from "./cluster-manifests.ts";
import { readKeyring } from "./keyring.ts";
import { lockObjectKey, lockStage, type StageLock } from "./lock.ts";
import { readReleaseStore } from "./releases.ts";
import { type DeploymentTargets, listBaseUrls, openTargetCluster, requireOwnEntries } from "./targets.ts";

export interface DestroyOptions extends Pick<DeploymentTargets, "stage" | "config" | "file" | "deployer" | "progress"> {
  /** If set, only the webhook configurations of these clusters are deleted, and nothing in AWS. */
  configsOnly?: string[] | undefined;
  /** The names of clusters (option --forget) that don't exist any more: nothing is deleted in them. */
  forgotten: string[];
  /** Whether the table with the ledger is deleted, too. */
  withData?: boolean;
  url?: string | undefined;
  /** Milliseconds that API servers may take to stop calling deleted entries. */
  noticing?: number;
}

/** Deletes the webhook configurations, then the functions. Returns the result in a sentence. */
export const destroyStage = async (demolition: DestroyOptions): Promise<string> => {
  const { stage, configsOnly, config, forgotten, withData } = demolition;
  if (configsOnly) {
    await deleteEntries(demolition, configsOnly);
    await forgetClusters(demolition, configsOnly);
    return `${configsOnly.join(", ")} ${configsOnly.length === 1 ? "has" : "have"} no entries of this stage any more`;
  }
  const act = async (lock: StageLock) => {
    const { all } = await readReleaseStore(stage.openStageBucket);
    const hasTable = await hasLedgerTable(demolition);
    const isThere =
      all.length > 0 ||
      (await stage.stack.readStatus()) !== undefined ||
      (await readKeyring(stage.parameters)) ||
      (withData && hasTable);
    if (!isThere) throw new Complaint(`there is no stage ${stage.name}: neither a stack nor keys`, 1);
    const unknown = Object.keys(all[0]?.clusters ?? {}).filter((name) => !config.clusters.has(name));
    const lost = unknown.filter((name) => !forgotten.includes(name));
    if (lost.length > 0)
      throw new Complaint(
        `${lost.join(", ")} ${lost.length === 1 ? "has" : "have"} entries for these rules, and postern.yaml doesn't say how to reach ${lost.length === 1 ? "it" : "them"}; use --forget NAME for a cluster that doesn't exist any more`,
        1,
      );
    const names = [...config.clusters.keys()].filter((name) => !forgotten.includes(name));
    await deleteEntries(demolition, names);
    await requireNoEntries(demolition, names);
    if (names.length > 0) await wait(demolition.noticing ?? 10_000);
    // Lambda may refuse to delete a version that has warm environments.
    for (const rule of all[0]?.warm ?? [])
      for (const { version } of await stage.functions.listWarmVersions(rule))
        await stage.functions.releaseWarmEnvironments(rule, version);
    // The table is deleted before the stack, whose bucket has the lock: later, another deployment could use the table.
    if (withData && hasTable) await deleteLedgerTable(demolition);
    await removeAws(stage, demolition.progress, lock);
    const kept = `; the table ${stage.ledger.name} with its ledger stays, unless postern destroy gets --with-data, too`;
    return `stage ${stage.name} is deleted${hasTable && !withData ? kept : ""}`;
  };
  return lockStage(stage, "postern destroy", act, { optional: true });
};

/** The milliseconds to wait for AWS at most. If AWS is down, the webhook entries are deleted all the same. */
const awsTimeout = 10_000;

/** Removes the clusters from the newest release, so that no deployment checks their entries. */
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

const deleteEntries = async (demolition: DestroyOptions, names: string[]) => {
  const failures: string[] = [];
  for (const name of names)
    await demolition.progress
      .step(`cluster ${name}`, async () => {
        const api = await openTargetCluster(demolition, name);
        await requireOwnEntries(api, demolition);
        const removed = await deletePosternObjects(api, webhookConfigurationName);
        return removed.length === 0 ? "nothing to delete" : `${formatCount(removed.length, "object")} deleted`;
      })
      // A cluster that can't be reached must not prevent the deletion in the others.
      .catch((error) => failures.push(toSentence(error)));
  if (failures.length > 0) throw new Complaint(failures.join("\n"), 1);
};

/** Throws if other webhook configurations, of another name or made by hand, still call these endpoints. */
const requireNoEntries = async (demolition: DestroyOptions, names: string[]) => {
  const bases = listBaseUrls(await demolition.stage.stack.readOutputs(), demolition.url);
  for (const name of names) {
    const left = await findEntriesCallingUrls(await openTargetCluster(demolition, name), bases);
    if (left.length > 0)
      throw new Complaint(
        `cluster ${name} still calls this stage: ${left.map(({ kind, name, entry }) => `${entry} of the ${kind} ${name}`).join(", ")}; delete that first`,
        1,
      );
  }
};

/** Reports whether the stage has a table. If that can't be read, only a command that deletes the table fails. */
const hasLedgerTable = async ({ stage: { ledger }, withData, progress }: DestroyOptions): Promise<boolean> => {
  try {
    return (await ledger.readFaults()) !== undefined;
  } catch (error) {
    if (withData) throw error;
    progress.say(`the ledger's table can't be read: ${toSentence(error)}`);
    return false;
  }
};

const deleteLedgerTable = ({ stage: { ledger }, progress }: DestroyOptions): Promise<void> =>
  progress.step("ledger", async () => ((await ledger.remove()) ? `the table ${ledger.name} is deleted` : "none"));

/** Deletes the keys and the stack, and the lock just before its bucket: CloudFormation deletes only empty buckets. */
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
