import { requireChangeableStack } from "../aws/stack.ts";
import { Complaint } from "../cli/complaint.ts";
import { runInParallel } from "../cli/progress.ts";
import type { Watch } from "./canary.ts";
import { planCluster } from "./cluster-plan.ts";
import { readStanding } from "./disarm.ts";
import type { Keyring } from "./keyring.ts";
import { pack } from "./package.ts";
import { type Plan, planParts, standings } from "./plan.ts";
import { openReleases, type Release, type Releases } from "./releases.ts";
import { planRights, planStack, rulesIn } from "./stack-plan.ts";
import { resolveAddresses, type Targets } from "./targets.ts";

export interface Job extends Targets {
  canary?: Watch | undefined;
  wave: number;
  /** Clusters that don't exist any more; they are removed from the release. */
  forgotten?: string[];
  signal?: AbortSignal | undefined;
}

/** The number of functions that are changed in parallel; Lambda's API allows 15 calls per second. */
export const atOnce = 5;

export interface Preparation {
  job: Job;
  releases: Releases;
  keyring: Keyring | undefined;
  plan: Plan;
}

/**
 * Builds, and compares with what is deployed. Without a keyring, the public keys and the state of clusters come from
 * the newest release: a plan needs neither the private key nor rights in a cluster.
 */
export const prepare = async (job: Job, keyring: Keyring | undefined, build = pack): Promise<Preparation> => {
  const { stage, catalogue, file } = job;
  const config = await resolveAddresses(job);
  const [releases, deployed, outputs] = await Promise.all([
    openReleases(stage.bucket),
    stage.stack.template(),
    stage.stack.outputs(),
  ]);
  const publicKeys = keyring?.publicKeys ?? (await readPublicKeys(job, releases.all[0]));
  const built = await build(stage.name, config, catalogue, file, publicKeys);
  const names = built.parts.map(({ name }) => name);
  const states = await standings(stage, names, releases.all);
  const missing = rulesIn(deployed, stage.name).find((rule) => names.includes(rule) && !states.has(rule));
  if (missing !== undefined) requireChangeableStack(stage.name, await stage.stack.status());
  if (missing !== undefined)
    throw new Complaint(
      `the stack has a function for ${missing}, and Lambda doesn't: somebody deleted it; turn the rule off until a later release has taken it out of the stack`,
      1,
    );
  const parts = planParts(built.parts, states, releases.all);
  const clusters = await runInParallel(atOnce, job.clusters, (name) =>
    planCluster(job, name, releases.all[0], keyring, outputs),
  );
  const elsewhere = [...parts.map(({ changes }) => changes), ...clusters.map(({ differences }) => differences)].some(
    ({ length }) => length > 0,
  );
  const { template, stack, kept } = planStack(stage.name, built, deployed, releases.all, elsewhere);
  const rights = planRights(deployed, template);
  const plan = { stage: stage.name, stack, template, parts, kept, rights, clusters, notes: built.notes };
  return { job, releases, keyring, plan };
};

const readPublicKeys = async ({ stage: { functions } }: Job, newest: Release | undefined): Promise<string> => {
  if (newest?.keys) return newest.keys.accepted;
  const [rule] = await functions.rules();
  return rule === undefined ? "" : ((await readStanding(functions, rule)).whole.environment.POSTERN_KEYS ?? "");
};
