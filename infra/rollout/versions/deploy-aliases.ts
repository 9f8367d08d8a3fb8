import { findClusterSetup } from "#lib/core/endpoint.ts";
import type { LiveAlias } from "../../aws/lambda-functions.ts";
import { Complaint, toSentence } from "../../cli/complaint.ts";
import { formatCount, runInParallel } from "../../cli/progress.ts";
import { probeEntries } from "../../clusters/probe.ts";
import { getRuleNameOfEntry } from "../../webhooks/configurations.ts";
import { dropVariantEntries, insertKeyIntoUrls, listCalledRules, listEntries } from "../clusters/cluster-manifests.ts";
import { maxParallelFunctionChanges, type PreparedDeployment } from "../preparation.ts";
import { type CanaryOutcome, type CanaryRun, runCanary } from "./canary.ts";
import { runCases } from "./case-runs.ts";
import type { Release } from "./releases.ts";

/** An alias that a deployment has moved from one version to another. */
interface AliasMove {
  rule: string;
  from: LiveAlias;
  to: string;
  /** True if `from` is another version than `to` and was released before, so it has passed its cases. */
  canMoveBack: boolean;
}

/**
 * Points the alias `live` of each rule at its new version, directly or after a canary. Returns the versions that are
 * live then, and the rules whose new version did not pass the canary.
 */
export const moveEveryAlias = async (
  prepared: PreparedDeployment,
  versions: Map<string, string>,
  clusters: Release["clusters"],
) => {
  const { job, plan, releases } = prepared;
  const { functions } = job.stage;
  const moves: AliasMove[] = [];
  for (const { part, known } of plan.parts) {
    const [rule, to] = [part.name, versions.get(part.name) ?? ""];
    // `known` is undefined for a rule that the stack has just created. Its alias points at its first version.
    const from = known?.live ?? (await functions.readAlias(rule));
    // A disarmed rule (it allows everything for some time) stays disarmed, unless it gets a new version.
    const staysDisarmed = known?.disarmed !== undefined && known.ruleVersion.version === to;
    if (staysDisarmed || (from.version === to && Object.keys(from.weights).length === 0)) continue;
    const wasReleased = releases.all.some(({ rules }) => rules[rule]?.version === from.version);
    moves.push({ rule, from, to, canMoveBack: wasReleased && from.version !== to });
  }
  const trials = job.canary ? moves.filter(({ canMoveBack }) => canMoveBack) : [];
  const direct = moves.filter((move) => !trials.includes(move));
  if (direct.length > 0) await moveAtOnce(prepared, direct, clusters);
  const live = new Map(versions);
  if (job.canary === undefined || trials.length === 0) return { live, stuck: [] };

  // An interrupted command may have left a canary running. It must end before a new canary begins.
  for (const { rule, from } of trials)
    if (Object.keys(from.weights).length > 0) await functions.moveAlias(rule, from.version, from);
  const { share, signal } = job.canary;
  const changes = trials.map(({ rule, from, to }) => ({ rule, old: from.version, fresh: to }));
  const runCasesOfRule: CanaryRun["runCases"] = async (rule, version) => {
    const part = plan.parts.find(({ part: { name } }) => name === rule)?.part;
    return part === undefined ? { cases: 0, faults: [] } : runCases(functions, part.listed, version, part);
  };
  const watch = { ...job.canary, runCases: runCasesOfRule };
  let outcomes: CanaryOutcome[] = [];
  await job.progress.step(`${Math.round(share * 100)}% of reviews`, async (tell) => {
    outcomes = await runCanary(job.stage, changes, watch, tell);
    return `${outcomes.filter(({ is }) => is === "promoted").length} of ${changes.length} promoted`;
  });
  const stuck = outcomes.flatMap((outcome) => (outcome.is === "promoted" ? [] : [outcome]));
  for (const outcome of outcomes)
    if (outcome.is === "promoted")
      job.progress.say(`${outcome.trial.rule}: version ${outcome.trial.fresh} is live: ${outcome.evidence}`);
  for (const { trial, is, why } of stuck) {
    live.set(trial.rule, trial.old);
    const what = {
      "rolled back": "was rolled back",
      undecided: "was rolled back without a result",
      lost: "is not in the canary any more",
    };
    job.progress.say(`${trial.rule}: version ${trial.fresh} ${what[is]}: ${why}`);
  }
  if (signal?.aborted) throw new Complaint("interrupted; the versions in the canary were rolled back", 1);
  return { live, stuck: stuck.map(({ trial }) => trial.rule) };
};

/** Moves aliases without a canary. If a move fails, or a new version fails its probes, moves them back and throws. */
const moveAtOnce = async (prepared: PreparedDeployment, moves: AliasMove[], clusters: Release["clusters"]) => {
  const { job } = prepared;
  const { functions } = job.stage;
  const moved: AliasMove[] = [];
  await job.progress.step("aliases", async (tell) => {
    await runInParallel(maxParallelFunctionChanges, moves, async (move) => {
      await functions.moveAlias(move.rule, move.to, move.from);
      moved.push(move);
      tell(moved.length, moves.length);
    }).catch(async (error) => {
      throw new Complaint(`${toSentence(error)}${await moveBack(prepared, moved)}`, 1);
    });
    return `${moves.length} moved`;
  });
  await probeOrMoveBack(prepared, moves, clusters);
};

/**
 * Points the aliases at their earlier versions again. Returns the end of a sentence, which says whether that succeeded.
 */
const moveBack = async ({ job }: PreparedDeployment, moves: AliasMove[]): Promise<string> => {
  const { functions } = job.stage;
  const stuck: string[] = [];
  for (const { rule, from } of moves)
    await functions
      .readAlias(rule)
      .then((live) => functions.moveAlias(rule, from.version, live))
      .catch(() => stuck.push(rule));
  return stuck.length === 0
    ? "; the aliases that were moved are moved back"
    : `; ${stuck.join(", ")} could not be moved back`;
};

/**
 * Returns a function that reports whether a rule is probed for a cluster. A rule that reads the cluster is probed for
 * each cluster. Other rules answer the same for all clusters with the same setup, so they are probed for the first of
 * these.
 */
const createProbeChoice = ({ plan }: PreparedDeployment, names: readonly string[]) => {
  const parts = new Map(plan.parts.flatMap(({ part }) => (names.includes(part.name) ? [[part.name, part]] : [])));
  const probedSetups = new Map(names.map((name) => [name, new Set<unknown>()]));
  return (rule: string, cluster: string): boolean => {
    const [part, setups] = [parts.get(rule), probedSetups.get(rule)];
    if (part === undefined || setups === undefined || part.readsCluster) return true;
    const setup = findClusterSetup(part.config, cluster);
    const isNew = !setups.has(setup);
    setups.add(setup);
    return isNew;
  };
};

/**
 * Probes the moved rules at the addresses that clusters call. If one fails, moves their aliases back and throws. Rules
 * that can't move back, such as new ones, are not probed.
 */
const probeOrMoveBack = async (prepared: PreparedDeployment, moves: AliasMove[], clusters: Release["clusters"]) => {
  const { job, keyring } = prepared;
  const reversible = moves.filter(({ canMoveBack }) => canMoveBack);
  const names = reversible.map(({ rule }) => rule);
  const isProbed = createProbeChoice(prepared, names);
  const entries = Object.entries(clusters).flatMap(([cluster, { manifests, keyVersion }]) => {
    const chosen = listCalledRules(manifests).filter((rule) => names.includes(rule) && isProbed(rule, cluster));
    if (keyring === undefined || chosen.length === 0) return [];
    const segment = keyring.current.signSegment(cluster, keyVersion);
    return listEntries(insertKeyIntoUrls(manifests, segment)).filter((webhook) =>
      chosen.includes(getRuleNameOfEntry(webhook) ?? ""),
    );
  });
  if (entries.length === 0) return;
  await job.progress.step("endpoints", async () => {
    // The probes are sent immediately, so that a bad version is not live for long. For some seconds, the old version
    // may still answer. Only test cases, which ran before, and later probes of each cluster then find a bad version.
    // The variants of a rule have an entry each, but one function: one of these entries is probed.
    const failing = (await probeEntries(dropVariantEntries(entries))).filter(({ ok }) => !ok);
    if (failing.length === 0) return `${formatCount(names.length, "rule")} checked`;
    const sentences = failing.map(({ sentence }) => sentence).join("\n");
    throw new Complaint(
      `not every new version answers at its address${await moveBack(prepared, reversible)}:\n${sentences}`,
      1,
    );
  });
};
