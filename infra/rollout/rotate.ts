import { readFile, writeFile } from "node:fs/promises";
import { setTimeout as wait } from "node:timers/promises";
import { isMap, parseDocument } from "yaml";
import { getFunctionsLogGroup, type LogQueryRow } from "../aws/log-queries.ts";
import { formatPage } from "../catalogue/sources.ts";
import { Complaint } from "../cli/complaint.ts";
import type { WebhookUrlSigner } from "../keys/keys.ts";
import { readConfig } from "../project/project.ts";
import { rollOut } from "./deploy.ts";
import { isUnchanged } from "./plan/kept-functions.ts";
import { changesNothing, type DeploymentPlan } from "./plan/plan.ts";
import { type DeploymentJob, prepareDeployment } from "./preparation.ts";
import {
  addSecondSigningKey,
  deleteAllKeysButNewest,
  type Keyring,
  readOrCreateKeyring,
  selectNewestKeyForNewUrls,
} from "./stage/keyring.ts";
import { lockStage, type StageLock } from "./stage/lock.ts";

/** How long a rotation waits until no caller uses the old URL key. */
interface OldUrlKeyWaits {
  /** The old key counts as unused after so many milliseconds without a review that used it. */
  unusedMilliseconds: number;
  /** After so many milliseconds, the rotation gives up. */
  maxMilliseconds: number;
  /** Milliseconds between two queries of the log. */
  pollMilliseconds?: number;
}

/**
 * Replaces the key that signs URLs. Functions first accept the old and the new key, then clusters get URLs with the new
 * key, and at the end the old key is deleted.
 */
export const rotateStageKey = (job: DeploymentJob, retirement: OldUrlKeyWaits): Promise<string> =>
  lockStage(job.stage, "postern rotate", async (lock) => {
    const { parameters } = job.stage;
    let keyring = await readOrCreateKeyring(parameters);
    // If there are two keys, an earlier rotation was interrupted, and this one continues it.
    if (keyring.signers.length === 1) await requireDeployedAndNotDisarmed(job, keyring);
    // `signers` begins with the old key. As long as new URLs get it, functions perhaps don't accept the new key yet.
    if (keyring.current === keyring.signers[0]) {
      keyring = await addSecondSigningKey(parameters);
      job.progress.say("functions are updated to accept a second key");
      await redeploy(job, keyring, lock);
      keyring = await selectNewestKeyForNewUrls(parameters);
    }
    job.progress.say("clusters get URLs with the new key");
    await redeploy(job, keyring, lock);
    const clustersWithRelay = [...job.config.clusters].flatMap(([name, { service }]) => (service ? [name] : []));
    tellOperatorsOfRelays(job, clustersWithRelay);
    const [old, fresh] = keyring.signers;
    if (old === undefined || fresh === undefined)
      throw new Complaint(
        "this stage has one key, but a rotation needs the old and the new one; run postern rotate again",
        3,
      );
    const oldKeys = [...job.config.clusters].flatMap(([cluster, { keyVersions }]) =>
      keyVersions.map((version) => ({ cluster, key: formatLoggedKey(old, version) })),
    );
    const newRelayKeys = clustersWithRelay.map((cluster) => {
      const { keyVersions = [] } = job.config.clusters.get(cluster) ?? {};
      return { cluster, key: formatLoggedKey(fresh, keyVersions.at(-1)) };
    });
    // Operators give relays their new URLs: wait until no call has an old key, and each relay has used its new one.
    await awaitKeyChange(job, { oldKeys, newRelayKeys }, retirement);
    keyring = await deleteAllKeysButNewest(parameters);
    job.progress.say("functions stop accepting the old key");
    await redeploy(job, keyring, lock);
    return "the key is replaced";
  });

/** Replaces the key of one cluster: postern.yaml has the old and the new key version first, later only the new one. */
export const rotateClusterKey = (job: DeploymentJob, name: string, retirement: OldUrlKeyWaits): Promise<string> =>
  lockStage(job.stage, "postern rotate", async (lock) => {
    const keyring = await readOrCreateKeyring(job.stage.parameters);
    const versions = job.config.clusters.get(name)?.keyVersions ?? [1];
    const [old = 1, fresh = old + 1] = versions;
    // If there are two versions, an earlier rotation was interrupted, and this one continues it.
    if (versions.length === 1) await requireDeployedAndNotDisarmed(job, keyring);
    const writeConfig = async (keyVersion: number | number[]): Promise<DeploymentJob> => {
      await writeKeyVersion(job.file, name, keyVersion);
      return { ...job, config: await readConfig(job.file, job.catalogue) };
    };
    job.progress.say(`postern.yaml: clusters.${name}.keyVersion is [${old}, ${fresh}]`);
    await redeploy(await writeConfig([old, fresh]), keyring, lock);
    const oldKeys = keyring.signers.map((signer) => ({ cluster: name, key: formatLoggedKey(signer, old) }));
    const hasRelay = job.config.clusters.get(name)?.service !== undefined;
    if (hasRelay) tellOperatorsOfRelays(job, [name]);
    // The deployment gives new URLs to clusters, but an operator gives them to relays. A review with a relay's new key
    // shows that this is done.
    const newRelayKeys = hasRelay ? [{ cluster: name, key: formatLoggedKey(keyring.current, fresh) }] : [];
    await awaitKeyChange(job, { oldKeys, newRelayKeys }, retirement);
    job.progress.say(`postern.yaml: clusters.${name}.keyVersion is ${fresh}`);
    await redeploy(await writeConfig(fresh), keyring, lock);
    return `the key of ${name} is replaced; commit postern.yaml`;
  });

/** Returns the field `Key` of log lines: the first eight characters of the public key, and the key version. */
const formatLoggedKey = ({ publicKey }: WebhookUrlSigner, keyVersion: number | undefined) =>
  `${publicKey.slice(0, 8)}.${keyVersion}`;

/** Returns the subject of "… is not live yet": what a plan changes besides keys and their versions, or undefined. */
const describeChangeBesidesKeys = ({ stack, parts }: DeploymentPlan): string | undefined => {
  // A line of `settings` is for instance "east.keyVersions: [1] → [1, 2]".
  const changed = parts.find(
    ({ changes, settings }) =>
      changes.some((change) => !["keys", "settings"].includes(change)) ||
      settings.some((setting) => !/\.keyVersions: /.test(setting)),
  );
  if (changed) return `the working tree's version of ${changed.part.name}`;
  return isUnchanged(stack) ? undefined : "the working tree's version of the stack";
};

/** Throws if a deployment would change anything, or if a rule is disarmed (allows all): a rotation would arm it. */
const requireDeployedAndNotDisarmed = async (job: DeploymentJob, keyring: Keyring) => {
  const { plan } = await prepareDeployment(job, keyring);
  const disarmed = plan.parts.find(({ known }) => known?.disarmed && known.disarmed.until > new Date());
  if (disarmed)
    throw new Complaint(
      `${disarmed.part.name} is disarmed, and a rotation would arm it again; run postern arm first`,
      1,
    );
  if (changesNothing(plan)) return;
  // The message says why a cluster can't be read, or names the rule, stack or cluster that changes. It names no part
  // for other changes, such as those of keys.
  const [unreadableReason] = plan.clusters.flatMap(({ unknown: whyUnreadable }) => whyUnreadable ?? []);
  const cluster = plan.clusters.find(({ differences }) => differences.length > 0)?.cluster;
  const what =
    describeChangeBesidesKeys(plan) ??
    (cluster === undefined ? "the working tree's version" : `the configuration of ${cluster}`);
  throw new Complaint(unreadableReason ?? `${what} is not live yet; run postern deploy first`, 1);
};

/** Deploys a change of keys. Throws if the plan has any other change. */
const redeploy = async (job: DeploymentJob, keyring: Keyring, lock: StageLock) => {
  await lock.check();
  const prepared = await prepareDeployment(job, keyring);
  const undeployed = describeChangeBesidesKeys(prepared.plan);
  if (undeployed !== undefined)
    throw new Complaint(
      `${undeployed} is not live yet, and a rotation must not release it; run postern deploy, then postern rotate again`,
      1,
    );
  if (!changesNothing(prepared.plan)) await rollOut(prepared, lock);
};

/** Names the signature in a cluster's URLs as log lines do. The signed text is the cluster's name and a key version. */
interface LoggedKey {
  cluster: string;
  /** The field `Key` of log lines, such as "mFz3aB1x.2": the start of the verifying public key, and the key version. */
  key: string;
}

const tellOperatorsOfRelays = ({ stage, progress }: DeploymentJob, clusters: string[]) => {
  for (const name of clusters)
    progress.say(
      `cluster ${name}: give its relay the new key now, which postern key ${name} --stage ${stage.name} prints (${formatPage("how-to/relay.md")})`,
    );
};

/**
 * Waits until no cluster uses its old key, and until each relay, which may have the old key, has sent a review with its
 * new key. Dry runs don't count for that: they may be Postern's own probes, which don't go through relays.
 */
const awaitKeyChange = async (
  { stage, progress }: DeploymentJob,
  { oldKeys, newRelayKeys }: { oldKeys: LoggedKey[]; newRelayKeys: LoggedKey[] },
  { unusedMilliseconds, maxMilliseconds, pollMilliseconds = 30_000 }: OldUrlKeyWaits,
) => {
  const start = Date.now();
  let unusedRelayKeys = newRelayKeys;
  await progress.step("the old key", async (tell) => {
    for (;;) {
      const now = Date.now();
      const rows = await stage.logs.query(
        getFunctionsLogGroup(stage.name),
        usesByKey,
        new Date(now - unusedMilliseconds),
        new Date(now),
      );
      const usedOldKeys = oldKeys.filter((key) => rows.some((row) => isUse(row, key)));
      const oldKeyClusters = [...new Set(usedOldKeys.map(({ cluster }) => cluster))];
      unusedRelayKeys = unusedRelayKeys.filter((key) => !rows.some((row) => isUse(row, key) && !isDryRun(row)));
      const waited = now - start;
      tell(Math.min(waited, unusedMilliseconds) / 1000, unusedMilliseconds / 1000);
      if (waited >= unusedMilliseconds && oldKeyClusters.length + unusedRelayKeys.length === 0) return "is unused";
      if (waited >= maxMilliseconds && oldKeyClusters.length === 0)
        throw new Complaint(
          `no review with the new key came through the relay of ${unusedRelayKeys.map(({ cluster }) => cluster).join(", ")}; once it has the new key, run postern rotate again`,
          1,
        );
      if (waited >= maxMilliseconds)
        throw new Complaint(
          `the old key is still used by ${oldKeyClusters.join(", ")}; once it is no longer used, run postern rotate again`,
          1,
        );
      await wait(pollMilliseconds);
    }
  });
};

const isUse = (row: LogQueryRow, { cluster, key }: LoggedKey) => row.Cluster === cluster && row.Key === key;

/** Reports whether log lines are of dry runs. Postern's own probes are dry runs, and they don't go through relays. */
const isDryRun = ({ dryRun = "" }: LogQueryRow) => ["1", "true"].includes(dryRun);

/** A query of the functions' log: how many reviews used each key of each cluster. */
const usesByKey = "filter ispresent(Key) | stats count(*) as reviews by Cluster, Key, dryRun";

/** Changes a cluster's key version in postern.yaml. The comments in the file stay. */
const writeKeyVersion = async (file: string, name: string, keyVersion: number | number[]) => {
  const document = parseDocument(await readFile(file, "utf8"));
  if (!isMap(document.get("clusters")))
    throw new Complaint(`postern.yaml names no clusters; write "clusters: { ${name}: {} }" there first`);
  if (document.getIn(["clusters", name]) === null) document.setIn(["clusters", name], document.createNode({}));
  document.setIn(["clusters", name, "keyVersion"], document.createNode(keyVersion, { flow: true }));
  await writeFile(file, document.toString({ lineWidth: 0 }));
};
