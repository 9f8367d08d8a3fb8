import { setTimeout as wait } from "node:timers/promises";
import { isAsWanted, type Live } from "../aws/functions.ts";
import { during, mustBeChangeable, repackage } from "../aws/stack.ts";
import { applyAll } from "../clusters/entries.ts";
import { probeAll } from "../clusters/probe.ts";
import { Complaint, sentenceOf } from "../complaint.ts";
import { counted, inParallel } from "../progress.ts";
import { ruleOf } from "../webhooks.ts";
import { type Outcome, tryOut, type Watch } from "./canary.ts";
import { configurationName, webhooksIn, withKey } from "./entries.ts";
import { type Keyring, openKeyring, readKeyring } from "./keyring.ts";
import { type Lock, locked, ourName } from "./lock.ts";
import { pack, rulesIn } from "./package.ts";
import { isIdle, type PartPlan, type Plan, planParts, planRights, planStack, standings } from "./plan.ts";
import { type Couple, couplesIn, prove, proveTogether } from "./prove.ts";
import { openReleases, type Release, type Releases, releasedVersions, toldIn } from "./releases.ts";
import { type Orphan, orphansIn, withoutOrphans } from "./served.ts";
import { accessTo, onePerPhase, planCluster, type Targets, tellCluster, withAddresses } from "./targets.ts";

/** What is to be deployed, where to, and how carefully. */
export interface Job extends Targets {
  /** A share of the reviews first. */
  canary?: Watch | undefined;
  /** How many clusters get their entries at a time. */
  wave: number;
  /** Clusters that are gone themselves: what they were told is forgotten. */
  forgotten?: string[];
  /** Stops it before the next step. */
  signal?: AbortSignal | undefined;
}

/** How many functions are changed at once: Lambda's own API takes 15 calls a second. */
const atOnce = 5;
/** So many versions of each rule are kept that were live before. */
const keptVersions = 4;

/** What a roll-out rests on. */
interface Ground {
  job: Job;
  releases: Releases;
  keyring: Keyring | undefined;
  plan: Plan;
}

/** Only looks: what would be deployed. */
export const planOf = async (job: Job): Promise<Plan> =>
  (await prepare(job, await readKeyring(job.stage.parameters))).plan;

/** Deploys, once the plan was shown, and answers what it did in a sentence. */
export const deploy = (job: Job, show: (plan: Plan) => Promise<void>, build = pack): Promise<string> =>
  locked(job.stage.parameters, "postern deploy", async (lock) => {
    const ground = await prepare(job, await openKeyring(job.stage.parameters), build);
    await show(ground.plan);
    return isIdle(ground.plan) ? settle(ground) : rollOut(ground, lock);
  });

/** Builds, and compares with what is there. */
export const prepare = async (job: Job, keyring: Keyring | undefined, build = pack): Promise<Ground> => {
  const { stage, catalogue, file } = job;
  const config = await withAddresses(job);
  const [releases, deployed, outputs] = await Promise.all([
    openReleases(stage.records),
    stage.stack.template(),
    stage.stack.outputs(),
  ]);
  const built = await build(stage.name, config, catalogue, file, keyring?.publicKeys ?? "");
  const names = built.parts.map(({ name }) => name);
  const states = await standings(stage, names, releases.all);
  const missing = rulesIn(deployed, stage.name).find((rule) => names.includes(rule) && !states.has(rule));
  if (missing !== undefined) mustBeChangeable(stage.name, await stage.stack.status());
  if (missing !== undefined)
    throw new Complaint(
      `the stack has a function for ${missing}, and Lambda doesn't: somebody deleted it; turn the rule off until a later release has taken it out of the stack`,
      1,
    );
  const parts = planParts(built.parts, states, releases.all);
  const clusters = await inParallel(atOnce, job.clusters, (name) =>
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

/** Nothing is left to do, perhaps but to say so in the record. */
const settle = async ({ job, releases }: Ground): Promise<string> => {
  const [newest] = releases.all;
  if (newest && !newest.complete && isForAll(job)) await releases.save({ ...newest, complete: true });
  return `nothing to do: release r${newest?.id ?? 0} is live`;
};

/** From what is proven by itself to what clusters rely on; whatever goes wrong leaves what comes after it as it was. */
export const rollOut = async (ground: Ground, lock: Lock): Promise<string> => {
  const { job, plan, releases } = ground;
  const unreachable = plan.clusters.find(({ unknown }) => unknown !== undefined);
  if (unreachable?.unknown !== undefined) throw new Complaint(unreachable.unknown, 3);
  const orphans = orphansOf(ground);
  const goOn = async () => {
    if (job.signal?.aborted) throw new Complaint("stopped; run it again, and it goes on", 1);
    await lock.check();
  };
  await deployStack(ground);
  await goOn();
  const versions = await publishAndProve(ground);
  await goOn();
  // As it is now: nothing is moved that could not be written down.
  const draft = { ...releaseOf(ground, new Map()), rules: releases.all[0]?.rules ?? {} };
  await releases.save(draft);
  await takeOut(ground, draft, orphans);
  const { live, stuck } = await moveAll(ground, versions, draft.clusters);
  const release = { ...releaseOf(ground, live), id: draft.id, clusters: draft.clusters };
  await releases.save(release);
  if (stuck.length > 0)
    throw new Complaint(
      `clusters keep their entries, for not every new version stood its trial: ${stuck.join(", ")}`,
      1,
    );
  await tellClusters(ground, release, goOn);
  const wasOpen = releases.all[0]?.complete === false;
  await releases.save({ ...release, complete: isForAll(job) || !wasOpen });
  await prune(ground, release);
  const where = job.clusters.length === 0 ? "" : ` in ${job.clusters.join(", ")}`;
  return `release r${release.id} is live${where}`;
};

/** Whether every cluster is told. */
const isForAll = ({ config, clusters }: Job) => [...config.clusters.keys()].every((name) => clusters.includes(name));

/** What clusters call by now and the versions to come won't answer, by cluster; or a Complaint, where it can't be mended. */
const orphansOf = ({ job, plan, releases }: Ground): Map<string, Orphan[]> => {
  const found = new Map<string, Orphan[]>();
  const served = new Map(
    plan.parts.map(({ part: { name, listed, share } }) => [name, { phases: listed.phases, share }]),
  );
  for (const [name, told] of toldIn(releases.all[0])) {
    if (webhooksIn(told.manifests).length === 0 || job.forgotten?.includes(name)) continue;
    if (!job.config.clusters.has(name))
      throw new Complaint(
        `cluster ${name} was told of these rules, and postern.yaml has it no more: with it there, postern destroy --configs-only --cluster ${name} frees it; --forget ${name}, if it is gone`,
        1,
      );
    const orphans = orphansIn(name, told, served);
    const [first] = orphans;
    if (first === undefined) continue;
    const sentence = `cluster ${name} calls ${first.entry}, which as it would be ${first.why}`;
    if (first.isKey) throw new Complaint(`${sentence}; postern rotate --cluster ${name} replaces its key`, 1);
    if (!job.clusters.includes(name) || job.write !== undefined)
      throw new Complaint(`${sentence}; its entry must go first: deploy to ${name}, too, and not by --write`, 1);
    found.set(name, orphans);
  }
  return found;
};

/** Clusters lose the entries that would get no answer, before anything moves. */
const takeOut = async ({ job, releases, keyring }: Ground, release: Release, orphans: Map<string, Orphan[]>) => {
  for (const [name, some] of orphans) {
    const told = release.clusters[name];
    if (told === undefined || keyring === undefined) continue;
    await job.progress.step(`cluster ${name}: entries that end`, async () => {
      const manifests = withoutOrphans(told.manifests, some);
      const api = await accessTo(job, name);
      await applyAll(api, withKey(manifests, keyring.current.segment(name, told.keyVersion)), configurationName);
      release.clusters = { ...release.clusters, [name]: { ...told, manifests } };
      await releases.save(release);
      return some.map(({ entry, phase }) => `${entry}/${phase}`).join(", ");
    });
  }
  if (orphans.size > 0) await wait(noticing);
};

/** How long API servers may take to notice that they shall not call any more. */
const noticing = 1000;

const deployStack = async ({ job, plan }: Ground) => {
  const { added, changed, removed, isNew } = plan.stack;
  const total = added.length + changed.length + removed.length;
  if (!isNew && total === 0) return;
  const { stack } = job.stage;
  mustBeChangeable(plan.stage, await stack.status());
  await job.progress.step("stack", async (tell) => {
    await repackage(plan.template);
    const start = new Date();
    await during(stack.deploy(), async () => tell(await stack.done(start), total));
    return `${counted(total, "resource")} ${isNew ? "made" : "changed"}`;
  });
};

/** Every rule that isn't as wanted gets a version that is, and that passes its cases. Answers the versions of all. */
const publishAndProve = async ({ job, plan, releases }: Ground): Promise<Map<string, string>> => {
  const { functions } = job.stage;
  const isOpen = ({ known, changes }: PartPlan) => known === undefined || changes.length > 0;
  const versions = new Map(
    plan.parts.flatMap(({ part, known }) => (known ? [[part.name, known.whole.version] as const] : [])),
  );
  const open = plan.parts.filter(isOpen);
  if (open.length === 0) return versions;
  await job.progress.step("versions", async (tell) => {
    let done = 0;
    let found = 0;
    await inParallel(atOnce, open, async ({ part: { name, wanted }, known }) => {
      const released = releasedVersions(releases.all, name);
      // One that was live before has passed its cases, and is gone back to.
      const before = known?.versions.findLast((one) => released.includes(one.version) && isAsWanted(one, wanted));
      if (before) found += 1;
      versions.set(name, before?.version ?? (await functions.publish(name, wanted)));
      tell(++done, open.length);
    });
    return `${open.length - found} published${found > 0 ? `, ${found} there already` : ""}`;
  });
  const unproven = open.filter(
    ({ part: { name } }) => !releases.all.some(({ rules }) => rules[name]?.version === versions.get(name)),
  );
  if (unproven.length === 0) return versions;
  await job.progress.step("cases", async (tell) => {
    let [done, cases] = [0, 0];
    const found = await inParallel(atOnce, unproven, async ({ part }) => {
      const version = versions.get(part.name) ?? "";
      const result = await prove(functions, part.listed, version, part);
      cases += result.cases;
      tell(++done, unproven.length);
      return result.faults.map((fault) => `version ${version} of ${fault}`);
    });
    const faults = found.flat();
    if (faults.length > 0)
      throw new Complaint(
        `nothing points at the new versions, for they don't do what their cases say:\n${faults.join("\n")}`,
        1,
      );
    return `${cases} passed, of ${counted(unproven.length, "rule")}`;
  });
  await proveNeighbours({ job, plan, releases }, versions);
  return versions;
};

/** While aliases move, the mutating half of a request may meet one version, and the validating half another. */
const proveNeighbours = async (
  { job, plan, releases }: Pick<Ground, "job" | "plan" | "releases">,
  versions: Map<string, string>,
) => {
  const before = new Map(
    plan.parts.flatMap(({ part: { name }, known }) => {
      const version = known?.whole.version ?? "";
      return releases.all.some(({ rules }) => rules[name]?.version === version) ? [[name, version] as const] : [];
    }),
  );
  const couples = couplesIn(plan.parts.map(({ part }) => part.listed)).filter(
    ({ mutator, validator }) =>
      [mutator, validator].every((name) => before.has(name)) &&
      [mutator, validator].some((name) => before.get(name) !== versions.get(name)),
  );
  if (couples.length === 0) return;
  await job.progress.step("neighbours", async () => {
    const of = (all: ReadonlyMap<string, string>, { mutator, validator }: Couple) => ({
      mutator: all.get(mutator) ?? "",
      validator: all.get(validator) ?? "",
    });
    const found = await inParallel(atOnce, couples, (couple) =>
      proveTogether(job.stage.functions, couple, of(before, couple), of(versions, couple)),
    );
    const faults = found.flat();
    if (faults.length > 0)
      throw new Complaint(
        `nothing points at the new versions, for requests could meet an old and a new one together:\n${faults.join("\n")}`,
        1,
      );
    return `${counted(couples.length, "rule")} in which either version takes what the other writes`;
  });
};

/** A rule whose alias has to point elsewhere. */
interface Move {
  rule: string;
  from: Live;
  to: string;
  /** Whether what it points at passed its cases, and may be gone back to. */
  wasReleased: boolean;
}

/** Points `live` at the versions, at once or after a trial. Answers what is live then, and which are not as wanted. */
const moveAll = async (ground: Ground, versions: Map<string, string>, told: Release["clusters"]) => {
  const { job, plan, releases } = ground;
  const { functions, metrics } = job.stage;
  const moves: Move[] = [];
  for (const { part, known } of plan.parts) {
    const [rule, to] = [part.name, versions.get(part.name) ?? ""];
    // Of one that the stack has just made, the first version is live.
    const from = known?.live ?? (await functions.live(rule));
    const isDisarmed = known?.disarmed !== undefined && known.whole.version === to;
    if (isDisarmed || (from.version === to && Object.keys(from.weights).length === 0)) continue;
    const wasReleased = releases.all.some(({ rules }) => rules[rule]?.version === from.version);
    moves.push({ rule, from, to, wasReleased });
  }
  const trials = job.canary ? moves.filter(({ from, to, wasReleased }) => wasReleased && from.version !== to) : [];
  const direct = moves.filter((move) => !trials.includes(move));
  if (direct.length > 0) await moveAtOnce(ground, direct, told);
  const live = new Map(versions);
  if (job.canary === undefined || trials.length === 0) return { live, stuck: [] };

  // What nobody watches any more is taken back before it is tried anew.
  for (const { rule, from } of trials)
    if (Object.keys(from.weights).length > 0) await functions.move(rule, from.version, from);
  const { share, signal } = job.canary;
  const watch = job.canary;
  const asked = trials.map(({ rule, from, to }) => ({ rule, old: from.version, fresh: to }));
  let outcomes: Outcome[] = [];
  await job.progress.step(`${Math.round(share * 100)}% of reviews`, async (tell) => {
    outcomes = await tryOut(functions, metrics, asked, watch, tell);
    return `${outcomes.filter(({ is }) => is === "promoted").length} of ${asked.length} promoted`;
  });
  const stuck = outcomes.flatMap((outcome) => (outcome.is === "promoted" ? [] : [outcome]));
  for (const { trial, is, why } of stuck) {
    live.set(trial.rule, trial.old);
    const what = {
      "taken back": "was taken back",
      undecided: "was taken back undecided",
      lost: "is not on trial any more",
    };
    job.progress.say(`${trial.rule}: version ${trial.fresh} ${what[is]}: ${why}`);
  }
  if (signal?.aborted) throw new Complaint("stopped; what was on trial was taken back", 1);
  return { live, stuck: stuck.map(({ trial }) => trial.rule) };
};

const moveAtOnce = async (ground: Ground, moves: Move[], told: Release["clusters"]) => {
  const { job } = ground;
  const { functions } = job.stage;
  const moved: Move[] = [];
  await job.progress.step("aliases", async (tell) => {
    await inParallel(atOnce, moves, async (move) => {
      await functions.move(move.rule, move.to, move.from);
      moved.push(move);
      tell(moved.length, moves.length);
    }).catch(async (error) => {
      // All of them or none.
      throw new Complaint(`${sentenceOf(error)}${await moveBack(ground, moved)}`, 1);
    });
    return `${moves.length} moved`;
  });
  await seeThem(ground, moves, told);
};

/** To where they were, each whatever becomes of the others; answers what could not be, as the end of a sentence. */
const moveBack = async ({ job }: Ground, moves: Move[]): Promise<string> => {
  const { functions } = job.stage;
  const stuck: string[] = [];
  for (const { rule, from } of moves)
    await functions
      .live(rule)
      .then((live) => functions.move(rule, from.version, live))
      .catch(() => stuck.push(rule));
  return stuck.length === 0 ? "; what was moved is moved back" : `; ${stuck.join(", ")} could not be moved back`;
};

/** What was moved must be seen to answer over the addresses that clusters call; otherwise all of it is moved back. */
const seeThem = async (ground: Ground, moves: Move[], told: Release["clusters"]) => {
  const { job, keyring } = ground;
  const back = moves.filter(({ wasReleased, from, to }) => wasReleased && from.version !== to);
  const names = back.map(({ rule }) => rule);
  const asked = Object.entries(told).flatMap(([cluster, { manifests, keyVersion }]) =>
    keyring === undefined
      ? []
      : webhooksIn(withKey(manifests, keyring.current.segment(cluster, keyVersion))).filter((webhook) =>
          names.includes(ruleOf(webhook) ?? ""),
        ),
  );
  if (asked.length === 0) return;
  await job.progress.step("doors", async () => {
    const sick = (await probeAll(onePerPhase(asked))).filter(({ ok }) => !ok);
    if (sick.length === 0) return `${counted(names.length, "rule")} seen to answer`;
    const sentences = sick.map(({ sentence }) => sentence).join("\n");
    throw new Complaint(
      `not every new version answers over its address${await moveBack(ground, back)}:\n${sentences}`,
      1,
    );
  });
};

/** The release, as far as it has come: a new one, or the one that was begun. */
const releaseOf = ({ job, plan, releases }: Ground, live: Map<string, string>): Release => {
  const [newest] = releases.all;
  const rules = plan.parts.map(({ part: { name, logic, share, listed } }) => {
    const version = live.get(name) ?? "";
    const last = newest?.rules[name];
    // One that is what it was is what was released then, whatever it was to become.
    const before = releases.all.find(({ rules }) => rules[name]?.version === version)?.rules[name];
    const earlier = [...new Set([last?.version ?? version, ...(last?.earlier ?? [])])].filter((one) => one !== version);
    const now = { version, logic, share, phases: listed.phases };
    return [name, { ...(before ?? now), earlier: earlier.slice(0, keptVersions) }] as const;
  });
  const clusters = Object.entries(newest?.clusters ?? {}).filter(([name]) => !job.forgotten?.includes(name));
  const isOpen = newest !== undefined && !newest.complete;
  return {
    id: isOpen ? newest.id : (newest?.id ?? 0) + 1,
    ...{ at: new Date().toISOString(), by: ourName(), complete: false },
    rules: Object.fromEntries(rules),
    clusters: Object.fromEntries(clusters),
  };
};

/** The clusters get their entries, some at a time; the first that isn't well stops it. */
const tellClusters = async ({ job, plan, releases, keyring }: Ground, release: Release, goOn: () => Promise<void>) => {
  if (keyring === undefined) throw new Complaint(`stage ${plan.stage} has no keys`, 3);
  for (let first = 0; first < job.clusters.length; first += job.wave) {
    await goOn();
    const wave = job.clusters.slice(first, first + job.wave);
    await inParallel(wave.length, wave, async (name) => {
      const hardened = plan.clusters.find(({ cluster }) => cluster === name)?.hardened ?? [];
      await tellCluster(job, name, release.clusters[name], hardened, keyring, async (told) => {
        release.clusters = { ...release.clusters, [name]: told };
        await releases.save(release);
      });
    });
  }
};

/** Versions that no release of late had go; never the first, which is the stack's, nor what is live, on trial or stood in for. */
const prune = async ({ job, plan }: Ground, release: Release) => {
  const { functions } = job.stage;
  let pruned = 0;
  await inParallel(atOnce, plan.parts, async ({ part: { name } }) => {
    const [live, versions] = await Promise.all([functions.live(name), functions.versions(name)]);
    const kept = new Set([
      ...[versions[0]?.version, live.version, ...Object.keys(live.weights)],
      versions.find(({ version }) => version === live.version)?.environment.DISARMED_VERSION,
      ...[release.rules[name]?.version, ...(release.rules[name]?.earlier ?? [])],
    ]);
    // A later one may be somebody's who is just about to point at it.
    const isOld = (version: string) => Number(version) < Number(live.version);
    for (const { version } of versions.filter((one) => !kept.has(one.version) && isOld(one.version))) {
      await functions.prune(name, version);
      pruned += 1;
    }
  }).catch((error) => job.progress.say(`old versions could not be deleted: ${sentenceOf(error)}`));
  if (pruned > 0) job.progress.say(`${counted(pruned, "old version")} deleted`);
};
