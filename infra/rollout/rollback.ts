import type { Stage } from "../aws/stage.ts";
import { applyAll, entriesNamed } from "../clusters/entries.ts";
import { Complaint, sentenceOf } from "../complaint.ts";
import { counted, inParallel, type Progress } from "../progress.ts";
import { checkReturn, type Known, known, rollBack } from "./emergency.ts";
import { configurationName, withKey } from "./entries.ts";
import { readKeyring } from "./keyring.ts";
import { ourName } from "./lock.ts";
import {
  openReleases,
  type Release,
  type Releases,
  releaseBefore,
  releasedVersions,
  releaseNamed,
} from "./releases.ts";
import { accessTo, type Targets } from "./targets.ts";

const atOnce = 5;

/** What was released; undefined where that can't be read, for none of this may depend on it. */
export const releasesOf = async ({ records }: Stage, progress: Progress): Promise<Releases | undefined> =>
  openReleases(records).catch((error) => {
    progress.say(`what was released can't be read: ${sentenceOf(error)}`);
    return undefined;
  });

/** Moves one rule back: to a version, to the one it had in a release, or to the one before. Answers which. */
export const rollBackOne = async (
  stage: Stage,
  rule: string,
  to: string | undefined,
  progress: Progress,
): Promise<string> => {
  const releases = await releasesOf(stage, progress);
  const all = releases?.all ?? [];
  const isRelease = to !== undefined && /^r\d+$/.test(to);
  if (to !== undefined && !isRelease && !/^\d+$/.test(to))
    throw new Complaint(`--to takes a release or a version, for instance r7 or 12, not "${to}"`);
  const wanted = isRelease ? versionIn(releaseNamed(all, to), rule) : to;
  const released = all.length === 0 ? undefined : releasedVersions(all, rule);
  const version = await rollBack(stage.functions, rule, wanted, released);
  const [newest] = all;
  const found = all.find(({ rules }) => rules[rule]?.version === version)?.rules[rule];
  if (releases && newest && found && newest.rules[rule]?.version !== version)
    await record(
      releases,
      { ...newest, like: newest.like ?? newest.id, rules: { ...newest.rules, [rule]: found } },
      progress,
    );
  return version;
};

const versionIn = ({ id, rules }: Release, rule: string): string => {
  const found = rules[rule];
  if (found === undefined) throw new Complaint(`release r${id} has no ${rule}`);
  return found.version;
};

/** Moves every rule to its version in a release, and then clusters to the entries of it, where they differ. */
export const rollBackAll = async (targets: Omit<Targets, "harden">, to: string | undefined): Promise<Release> => {
  const { stage, progress } = targets;
  const releases = await openReleases(stage.records);
  const [newest] = releases.all;
  if (newest === undefined) throw new Complaint("nothing was released yet", 1);
  const target = to === undefined ? releaseBefore(releases.all) : releaseNamed(releases.all, to);
  const there = await stage.functions.rules();
  const names = Object.keys(target.rules).filter((rule) => there.includes(rule));
  const states = await inParallel(atOnce, names, (rule) => known(stage.functions, rule));
  // All of them or none.
  for (const state of states) checkReturn(state, versionIn(target, state.rule));
  const early = clustersToTellFirst(newest, target);
  const release = { ...newest, like: target.like ?? target.id, rules: { ...newest.rules, ...target.rules } };
  await tell(targets, release, target, early);
  await progress.step("aliases", async () => {
    const moved = await inParallel(atOnce, states, (state) => moveTo(stage, state, versionIn(target, state.rule)));
    return `${moved.filter(Boolean).length} moved`;
  });
  const late = targets.clusters.filter((name) => !early.includes(name));
  const left = await tell(targets, release, target, late);
  const saved = await record(releases, release, progress);
  if (left.length > 0)
    throw new Complaint(
      `the rules are those of release r${target.id}, but not every cluster has its entries:\n${left.join("\n")}`,
      1,
    );
  return saved;
};

/** A variant that is new in a release is not known to versions before it: what names it goes first. */
const clustersToTellFirst = (newest: Release, target: Release): string[] =>
  Object.entries(newest.clusters).flatMap(([name, { manifests }]) => {
    const before = target.clusters[name];
    if (before === undefined) return [];
    const known = new Set(entriesNamed(before.manifests).map((entry) => JSON.stringify(entry)));
    const isNew = entriesNamed(manifests).some(
      (entry) => entry.variant !== undefined && target.rules[entry.rule] && !known.has(JSON.stringify(entry)),
    );
    return isNew ? [name] : [];
  });

const moveTo = async ({ functions }: Stage, { rule, live }: Known, version: string): Promise<boolean> => {
  if (live.version === version && Object.keys(live.weights).length === 0) return false;
  await functions.move(rule, version, live);
  return true;
};

/** Gives clusters a release's entries; answers, in sentences, for which it could not. */
const tell = async (
  targets: Omit<Targets, "harden">,
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
        const segment = keyring.current.segment(name, now.keyVersion);
        const api = await accessTo(targets, name);
        const changes = await applyAll(api, withKey(then.manifests, segment), configurationName);
        release.clusters = { ...release.clusters, [name]: { ...then, keyVersion: now.keyVersion } };
        return `${counted(changes.length, "object")} changed`;
      })
      .catch((error) => failures.push(sentenceOf(error)));
  }
  return failures;
};

/** Writes down where one is now; that this fails undoes nothing. */
const record = async (releases: Releases, release: Release, progress: Progress): Promise<Release> => {
  const id = (releases.all[0]?.id ?? 0) + 1;
  const next = { ...release, id, at: new Date().toISOString(), by: ourName(), complete: true };
  await releases
    .save(next)
    .catch((error) => progress.say(`release r${id} could not be written down: ${sentenceOf(error)}`));
  return next;
};
