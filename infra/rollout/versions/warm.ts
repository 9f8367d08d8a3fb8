import { setTimeout as wait } from "node:timers/promises";
import type { StageFunctions, WarmVersion } from "../../aws/lambda-functions.ts";
import type { AwsStage } from "../../aws/stage.ts";
import { Complaint, toSentence } from "../../cli/complaint.ts";
import { formatCount, type Progress, runInParallel } from "../../cli/progress.ts";
import type { DeploymentPlan, RuleChangePlan, WarmRulePlan } from "../plan/plan.ts";
import type { Release } from "./releases.ts";

// Warm environments are Lambda's provisioned concurrency. Postern requests them for versions, not for the alias `live`.
// An alias with weights can't have provisioned concurrency, and Lambda itself gives an alias with provisioned
// concurrency weights while it moves.

const atOnce = 5;

/** Plans the warm environments of each rule that needs some, or had some in the newest release. */
export const planWarmEnvironments = (
  functions: StageFunctions,
  ruleChanges: RuleChangePlan[],
  newest: Release | undefined,
): Promise<WarmRulePlan[]> => {
  const planned = new Map(ruleChanges.map((change) => [change.part.name, change]));
  const wanting = ruleChanges.flatMap(({ part: { name, warm } }) => (warm === undefined ? [] : [name]));
  return runInParallel(atOnce, [...new Set([...wanting, ...(newest?.warm ?? [])])], async (rule) => {
    const change = planned.get(rule);
    const existing = await functions.listWarmVersions(rule);
    const wanted = change?.part.warm ?? 0;
    return { rule, wanted, there: existing, changes: describeWarmChanges(change, wanted, existing) };
  });
};

const countWarm = (count: number) => formatCount(count, "warm environment");

/**
 * Describes the changes to a rule's warm environments: those to start, and those of other versions to release. For a
 * rule that is off, `change` is undefined and `wanted` is 0.
 */
const describeWarmChanges = (change: RuleChangePlan | undefined, wanted: number, existing: WarmVersion[]): string[] => {
  const getsNewVersion = change !== undefined && change.changes.length > 0;
  const liveVersion = change?.known?.ruleVersion.version;
  const keptVersion = wanted > 0 && !getsNewVersion ? liveVersion : undefined;
  const kept = existing.find(({ version }) => version === keptVersion);
  const sentences: string[] = [];
  if (wanted > 0 && getsNewVersion) sentences.push(`${countWarm(wanted)} on the new version`);
  else if (wanted > 0 && !isReady(kept, wanted))
    sentences.push(
      `${countWarm(wanted)} on version ${keptVersion}${kept ? `, which has ${kept.count} (${kept.status})` : ", which has none"}`,
    );
  for (const { version, count } of existing)
    if (version !== keptVersion) sentences.push(`no longer ${countWarm(count)} on version ${version}`);
  return sentences;
};

const isReady = (warm: WarmVersion | undefined, wanted: number): boolean =>
  warm?.count === wanted && warm.status === "READY";

interface WarmDeployment {
  job: { stage: AwsStage; progress: Progress };
  plan: Pick<DeploymentPlan, "warm" | "parts">;
}

/** Starts the warm environments of new versions, and waits until they are ready. Aliases move to them later. */
export const startWarmEnvironments = async (
  { job, plan }: WarmDeployment,
  versions: ReadonlyMap<string, string>,
  requireMayContinue: () => Promise<void>,
): Promise<void> => {
  const starting = plan.warm.flatMap(({ rule, wanted, there: existing }) => {
    const version = versions.get(rule);
    const needsWarm = version !== undefined && wanted > 0;
    const warm = existing.find((candidate) => candidate.version === version);
    return needsWarm && !isReady(warm, wanted) ? [{ rule, version, wanted }] : [];
  });
  if (starting.length === 0) return;
  await job.progress.step("warm environments", async (tell) => {
    let done = 0;
    await runInParallel(atOnce, starting, async (start) => {
      await startAndAwaitWarm(job.stage.functions, start, requireMayContinue);
      tell(++done, starting.length);
    });
    return `${starting.reduce((sum, { wanted }) => sum + wanted, 0)} ready, of ${formatCount(starting.length, "rule")}`;
  });
};

/** Starts the warm environments of a version, unless an earlier command did so, and waits until all are ready. */
export const startAndAwaitWarm = async (
  functions: Pick<StageFunctions, "listWarmVersions" | "requestWarmEnvironments">,
  { rule, version, wanted }: { rule: string; version: string; wanted: number },
  requireMayContinue: () => Promise<void>,
  maxMilliseconds = 600_000,
): Promise<void> => {
  const end = Date.now() + maxMilliseconds;
  const what = `${countWarm(wanted)} of version ${version} of ${rule}`;
  let isRequested = false;
  for (let pause = 200; ; pause = Math.min(2 * pause, 5000)) {
    const warm = (await functions.listWarmVersions(rule)).find((candidate) => candidate.version === version);
    if (isReady(warm, wanted)) return;
    if (isRequested && warm?.status === "FAILED")
      throw new Complaint(
        `nothing was moved, because Lambda could not start ${what}: ${warm.reason ?? "no reason"}`,
        1,
      );
    if (!isRequested && (warm?.count !== wanted || warm.status === "FAILED")) {
      await functions.requestWarmEnvironments(rule, version, wanted);
      isRequested = true;
    }
    if (Date.now() >= end)
      throw new Complaint(
        `nothing was moved, because Lambda has not started ${what} within ${Math.round(maxMilliseconds / 60_000)} minutes; run the command again to continue`,
        1,
      );
    await wait(pause);
    await requireMayContinue();
  }
};

/**
 * Releases the warm environments of versions that are not live, and of rules that have no `warm` in postern.yaml any
 * more. If that fails for a rule, reports it; the next deployment tries again. Returns the rules that may still have
 * warm environments.
 */
export const stopUnusedWarmEnvironments = async (
  { job, plan }: WarmDeployment,
  live: ReadonlyMap<string, string> = new Map(
    plan.parts.flatMap(({ part: { name }, known }) => (known ? [[name, known.ruleVersion.version]] : [])),
  ),
): Promise<string[]> => {
  const { functions } = job.stage;
  const found = await runInParallel(atOnce, plan.warm, async ({ rule, wanted }) => {
    try {
      const warmVersions = await functions.listWarmVersions(rule);
      if (warmVersions.length === 0) return [];
      // Another command may have moved the alias. The version at which it points now stays warm, too.
      const { version, weights } = await functions.readAlias(rule);
      const kept = wanted > 0 ? [live.get(rule), version, ...Object.keys(weights)] : [];
      for (const warm of warmVersions)
        if (!kept.includes(warm.version)) await functions.releaseWarmEnvironments(rule, warm.version);
      return wanted > 0 ? [rule] : [];
    } catch (error) {
      job.progress.say(`old warm environments of ${rule} could not be released: ${toSentence(error)}`);
      return [rule];
    }
  });
  return found.flat();
};

/** Returns a sentence if only other versions of the rule have warm environments; else undefined. */
export const describeColdVersion = async (
  functions: StageFunctions,
  rule: string,
  version: string,
): Promise<string | undefined> => {
  // The sentence is only a hint: if Lambda doesn't answer, a rollback must not fail because of it.
  const warmVersions = await functions.listWarmVersions(rule).catch((): WarmVersion[] => []);
  const isCold =
    warmVersions.length > 0 && warmVersions.every((warm) => warm.version !== version || warm.status !== "READY");
  return isCold
    ? `version ${version} of ${rule} has no warm environments, so its first reviews take longer`
    : undefined;
};
