import { setTimeout as wait } from "node:timers/promises";
import type { StageFunctions } from "../../aws/lambda-functions.ts";
import { getFunctionsLogGroup, type LogQueryRow } from "../../aws/log-queries.ts";
import type { CloudWatchMetricQuery } from "../../aws/metrics.ts";
import type { AwsStage } from "../../aws/stage.ts";
import { Complaint, toSentence } from "../../cli/complaint.ts";
import { formatCount, type ReportProgress } from "../../cli/progress.ts";

/** The two versions of a rule's canary: `fresh` gets a share of the reviews, and `old` gets the rest. */
export interface CanaryVersionPair {
  rule: string;
  old: string;
  fresh: string;
}

/** What became of a rule's canary: its new version went live, or why it didn't. */
export type CanaryOutcome =
  | { trial: CanaryVersionPair; is: "promoted"; evidence: string }
  /** The outcome "lost" means that another command moved the alias, or that moving the alias failed. */
  | { trial: CanaryVersionPair; is: "rolled back" | "undecided" | "lost"; why: string };

/** How a canary runs: its part of the reviews, and how long and how often it is watched. */
export interface CanaryOptions {
  /** The share of reviews for the new versions, from 0.01 to 0.99. */
  share: number;
  milliseconds: number;
  /** Milliseconds between two looks at the versions' counts. */
  every?: number;
  /** Milliseconds after which CloudWatch has the metrics of a call. */
  metricDelay?: number;
  signal?: AbortSignal | undefined;
}

/** The options of a canary, with the cases that speak for versions with few reviews. */
export interface CanaryRun extends CanaryOptions {
  /** Runs a rule's cases in Lambda, in one of its versions. Returns their number, and a sentence for each that fails. */
  runCases(rule: string, version: string): Promise<{ cases: number; faults: string[] }>;
}

/** What a version did during the trial of a canary. */
export interface CanaryVersionCounts {
  /** The number of calls of the version's function, with those that crashed. */
  calls: number;
  reviews: number;
  denials: number;
  /** The number of reviews with an error in Postern, and of calls with an error in Lambda. */
  errors: number;
  /** Milliseconds, without the starts of the function. */
  p99: number;
}

/** The parts of a stage that a canary uses. */
export interface CanaryStage extends Pick<AwsStage, "name" | "metrics"> {
  functions: Pick<StageFunctions, "getFunctionName" | "readAlias" | "moveAlias">;
  logs: Pick<AwsStage["logs"], "query">;
}

/** The fewest reviews after which they alone decide, and after which latencies are compared. */
export const minimumCanaryReviews = 50;

/**
 * Gives fresh versions a share of the reviews. A fault of one version rolls all of them back, because they are to go
 * live together. Versions with enough reviews are promoted after the given time. The others are promoted after twice that
 * time if no review failed and all their cases pass in Lambda. A version with enough reviews is not promoted if nothing is
 * known of the version before it. A result waits for the metrics of the whole time: CloudWatch can show reviews three
 * minutes before the crashes of the same version.
 */
export const runCanary = async (
  stage: CanaryStage,
  trials: CanaryVersionPair[],
  { share, milliseconds, runCases, every = 30_000, metricDelay = 180_000, signal }: CanaryRun,
  tell: ReportProgress = () => {},
): Promise<CanaryOutcome[]> => {
  const { functions } = stage;
  const open = new Map(trials.map((trial) => [trial.rule, trial]));
  const outcomes: CanaryOutcome[] = [];
  /**
   * Ends the trial of one rule: points its alias at `version`, unless another command has moved the alias. An error
   * doesn't stop other trials.
   */
  const endTrial = async (trial: CanaryVersionPair, version: string, outcome: CanaryOutcome) => {
    open.delete(trial.rule);
    const stray = await pointAlias(functions, trial, version).catch((error) => toSentence(error));
    outcomes.push(stray === undefined ? outcome : { trial, is: "lost", why: stray });
  };
  const rollBackCanaries = async (describeReason: (trial: CanaryVersionPair) => string) => {
    for (const trial of [...open.values()])
      await endTrial(trial, trial.old, { trial, is: "rolled back", why: describeReason(trial) });
  };
  const start = new Date();
  try {
    for (const trial of trials) {
      const live = await functions.readAlias(trial.rule);
      if (live.version !== trial.old)
        throw new Complaint(
          `another command has just moved the alias of ${trial.rule}; check it with postern status`,
          1,
        );
      await functions.moveAlias(trial.rule, trial.old, live, { [trial.fresh]: share });
    }
    const all = milliseconds + metricDelay;
    const [first, last] = [start.getTime() + all, start.getTime() + all + milliseconds];
    /** The time at which each rule's new version was seen to have enough reviews. */
    const sufficed = new Map<string, number>();
    const mayLackMetrics = (rule: string) => Date.now() < (sufficed.get(rule) ?? 0) + metricDelay;
    while (open.size > 0) {
      const end = [first, last].find((time) => Date.now() < time) ?? Number.POSITIVE_INFINITY;
      await wait(Math.max(0, Math.min(every, end - Date.now())), undefined, { signal });
      tell(Math.min(Date.now() - start.getTime(), all) / 1000, all / 1000);
      const observed = await readCounts(stage, [...open.values()], start);
      const bad = new Map(
        observed.flatMap(({ trial, old, fresh }) => {
          const why = findCanaryFault(old, fresh);
          return why === undefined ? [] : [[trial.rule, why] as const];
        }),
      );
      const isOver = Date.now() >= last;
      const scarce = isOver ? observed.filter(({ fresh }) => fresh.reviews < minimumCanaryReviews) : [];
      const evidence = new Map<string, string>();
      for (const { trial, fresh } of bad.size === 0 ? scarce : []) {
        const { cases, faults } = await runCases(trial.rule, trial.fresh);
        if (fresh.errors > 0)
          bad.set(trial.rule, `it failed ${fresh.errors} of its ${formatCount(fresh.calls, "review")}`);
        else if (faults.length > 0) bad.set(trial.rule, `its cases fail: ${faults.join("; ")}`);
        else if (fresh.reviews + cases > 0)
          evidence.set(trial.rule, `${formatCount(fresh.reviews, "review")}, ${formatCount(cases, "case")}, 0 faults`);
      }
      if (bad.size > 0) {
        const others = [...bad.keys()].join(", ");
        await rollBackCanaries(({ rule }) => bad.get(rule) ?? `it can only be promoted together with ${others}`);
        break;
      }
      for (const { trial, fresh } of observed)
        if (fresh.reviews >= minimumCanaryReviews && !sufficed.has(trial.rule)) sufficed.set(trial.rule, Date.now());
      if (Date.now() < first) continue;
      for (const { trial, old, fresh } of observed.filter(({ trial }) => !mayLackMetrics(trial.rule))) {
        if (fresh.reviews >= minimumCanaryReviews && old.calls > 0)
          evidence.set(trial.rule, `${fresh.reviews} reviews, ${formatCount(fresh.errors, "fault")}`);
        const found = evidence.get(trial.rule);
        if (found !== undefined) await endTrial(trial, trial.fresh, { trial, is: "promoted", evidence: found });
        else if (isOver) {
          const why = describeMissingReviews(trial, fresh.reviews, stage.name);
          await endTrial(trial, trial.old, { trial, is: "undecided", why });
        }
      }
    }
  } catch (error) {
    const why = signal?.aborted ? "it was interrupted" : `the canary could not continue: ${toSentence(error)}`;
    await rollBackCanaries(() => why);
  }
  return outcomes;
};

/**
 * Says why a canary ends undecided. Cases of the rule's cases.yaml that ran in Lambda would have counted instead of
 * reviews of the new version.
 */
const describeMissingReviews = ({ old }: CanaryVersionPair, reviews: number, stage: string) =>
  reviews < minimumCanaryReviews
    ? "it had no reviews, and Lambda can run none of its cases; deploy once without --canary"
    : `version ${old} logged no reviews in ${getFunctionsLogGroup(stage)} to compare it with; deploy once without --canary`;

/**
 * Ends a canary by pointing the rule's alias at one of its two versions. Returns a sentence instead if another
 * command has moved the alias.
 */
const pointAlias = async (
  functions: CanaryStage["functions"],
  { rule, old, fresh }: CanaryVersionPair,
  version: string,
): Promise<string | undefined> => {
  const live = await functions.readAlias(rule);
  const isOurs = live.version === old && Object.keys(live.weights).every((key) => key === fresh);
  if (!isOurs) return `another command has moved it to version ${live.version}`;
  await functions.moveAlias(rule, version, live);
  return undefined;
};

const readCounts = async (stage: CanaryStage, trials: CanaryVersionPair[], since: Date) => {
  const now = new Date();
  const versions = trials.flatMap(({ rule, old, fresh }) =>
    [old, fresh].map((version) => ({ version, name: stage.functions.getFunctionName(rule) })),
  );
  const questions = versions.map(({ name, version }) => [`${name}:${version}`, buildCrashQuestion(name, version)]);
  const [crashes, rows]: [Record<string, number>, LogQueryRow[]] = await Promise.all([
    stage.metrics.ask(Object.fromEntries(questions), since, now),
    stage.logs.query(getFunctionsLogGroup(stage.name), countsByVersion, since, now),
  ]);
  const read = (rule: string, version: string): CanaryVersionCounts => {
    const name = stage.functions.getFunctionName(rule);
    const row = rows.find((found) => found.Function === name && found.Version === version);
    const get = (field: string) => Number(row?.[field] ?? 0);
    const crashed = crashes[`${name}:${version}`] ?? 0;
    return {
      calls: get("reviews") + crashed,
      reviews: get("reviews"),
      denials: get("denials"),
      errors: get("failures") + crashed,
      p99: get("p99"),
    };
  };
  return trials.map((trial) => {
    return { trial, old: read(trial.rule, trial.old), fresh: read(trial.rule, trial.fresh) };
  });
};

/**
 * Counts what versions did. A new version starts more often than the version before it, so the time of starts (Init) is
 * left out. Only lines of callers with a valid key have the field Cluster.
 */
const countsByVersion = `fields Latency - Init as own
| filter ispresent(Cluster)
| stats sum(Reviews) as reviews, sum(Denials) as denials, sum(Errors) as failures, pct(own, 99) as p99 by Function, Version`;

/** A crashed function logs no review, so AWS's metric counts the crashes. */
const buildCrashQuestion = (name: string, version: string): CloudWatchMetricQuery => {
  const dimensions = { FunctionName: name, Resource: `${name}:live`, ExecutedVersion: version };
  return { namespace: "AWS/Lambda", metric: "Errors", dimensions, stat: "Sum" };
};

/** Returns the fault of a fresh version in a sentence; undefined if there is none, or too few reviews. */
export const findCanaryFault = (old: CanaryVersionCounts, fresh: CanaryVersionCounts): string | undefined => {
  const [before, now] = [old.errors / Math.max(1, old.calls), fresh.errors / Math.max(1, fresh.calls)];
  if (fresh.errors >= 3 && now > 2 * before + 0.01) {
    const known =
      old.calls > 0 ? `the version before ${formatShare(before)}` : "nothing is known of the version before";
    return `it fails ${formatShare(now)} of its reviews, and ${known}`;
  }
  const [denied, denies] = [old.denials / Math.max(1, old.reviews), fresh.denials / Math.max(1, fresh.reviews)];
  if (isSignificant(old, fresh) && Math.abs(denies - denied) > 0.05)
    return `it denies ${formatShare(denies)} of its reviews, and the version before ${formatShare(denied)}`;
  if (
    fresh.reviews >= minimumCanaryReviews &&
    old.reviews >= minimumCanaryReviews &&
    fresh.p99 > 3 * old.p99 &&
    fresh.p99 > old.p99 + 250
  )
    return `one review in a hundred takes it ${Math.round(fresh.p99)} ms, and the version before ${Math.round(old.p99)} ms`;
  return undefined;
};

/** Reports whether two shares of denials differ by more than chance: by four standard deviations and three reviews. */
const isSignificant = (old: CanaryVersionCounts, fresh: CanaryVersionCounts): boolean => {
  if (fresh.reviews < 10 || old.reviews < 10) return false;
  const all = (old.denials + fresh.denials) / (old.reviews + fresh.reviews);
  const deviation = Math.sqrt(all * (1 - all) * (1 / old.reviews + 1 / fresh.reviews));
  const apart = Math.abs(fresh.denials / fresh.reviews - old.denials / old.reviews);
  return deviation > 0 && apart / deviation > 4 && apart * fresh.reviews >= 3;
};

const formatShare = (share: number) => `${(100 * share).toFixed(share < 0.1 && share > 0 ? 1 : 0)}%`;
