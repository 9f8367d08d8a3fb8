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

/** How a rule's canary ended. */
export type CanaryOutcome =
  | { trial: CanaryVersionPair; is: "promoted"; evidence: string }
  /** "lost" means that another command has moved the alias, or that the alias could not be moved. */
  | { trial: CanaryVersionPair; is: "rolled back" | "undecided" | "lost"; why: string };

/** How many reviews a canary gets, and how long and how often it is watched. */
export interface CanaryOptions {
  /** The share of reviews for the new versions, from 0.01 to 0.99. */
  share: number;
  /** The time after which versions with enough reviews are promoted. */
  milliseconds: number;
  /** Milliseconds between two queries for the versions' counts. */
  every?: number;
  /** Milliseconds after which CloudWatch has the metrics of a call. */
  metricDelay?: number;
  signal?: AbortSignal | undefined;
}

/** The options of a canary, and a function that runs cases. If a version has too few reviews, its cases decide. */
export interface CanaryRun extends CanaryOptions {
  /** Runs a rule's cases in Lambda, in one version. Returns their number, and a sentence for each that fails. */
  runCases(rule: string, version: string): Promise<{ cases: number; faults: string[] }>;
}

/** What a version has done since the canary began. */
export interface CanaryVersionCounts {
  /** The number of calls of the version's function, including calls that crashed. */
  calls: number;
  reviews: number;
  denials: number;
  /** The number of reviews with an error in Postern, and of calls with an error in Lambda. */
  errors: number;
  /** The latency in milliseconds that 99% of reviews don't exceed, without the time in which the function starts. */
  p99: number;
}

/** The parts of a stage that a canary uses. */
export interface CanaryStage extends Pick<AwsStage, "name" | "metrics"> {
  functions: Pick<StageFunctions, "getFunctionName" | "readAlias" | "moveAlias">;
  logs: Pick<AwsStage["logs"], "query">;
}

/** A version with so many reviews is promoted without its cases, and its latency is compared. */
export const minimumCanaryReviews = 50;

/**
 * Gives fresh versions a share of the reviews. If one version has a fault, all fresh versions are rolled back, because
 * they must go live together.
 * - A version with enough reviews is promoted after the time `milliseconds`, unless the old version has no calls to
 *   compare with.
 * - A version with too few reviews is promoted after twice that time if no review failed and all its cases pass in Lambda.
 * Before each decision, the canary waits for all metrics: CloudWatch can show a crash three minutes after it happened.
 */
export const runCanary = async (
  stage: CanaryStage,
  trials: CanaryVersionPair[],
  { share, milliseconds, runCases, every = 30_000, metricDelay = 180_000, signal }: CanaryRun,
  tell: ReportProgress = () => {},
): Promise<CanaryOutcome[]> => {
  const { functions } = stage;
  const running = new Map(trials.map((trial) => [trial.rule, trial]));
  const outcomes: CanaryOutcome[] = [];
  /**
   * Ends the trial of one rule: points its alias at `version`, unless another command has moved the alias. An error
   * doesn't stop other trials.
   */
  const endTrial = async (trial: CanaryVersionPair, version: string, outcome: CanaryOutcome) => {
    running.delete(trial.rule);
    const failure = await pointAlias(functions, trial, version).catch((error) => toSentence(error));
    outcomes.push(failure === undefined ? outcome : { trial, is: "lost", why: failure });
  };
  const rollBackCanaries = async (describeReason: (trial: CanaryVersionPair) => string) => {
    for (const trial of [...running.values()])
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
    const firstMilliseconds = milliseconds + metricDelay;
    const firstDecision = start.getTime() + firstMilliseconds;
    const lastDecision = firstDecision + milliseconds;
    /** When each rule's new version had enough reviews for the first time. */
    const enoughReviewsAt = new Map<string, number>();
    const mayLackMetrics = (rule: string) => Date.now() < (enoughReviewsAt.get(rule) ?? 0) + metricDelay;
    while (running.size > 0) {
      const end = [firstDecision, lastDecision].find((time) => Date.now() < time) ?? Number.POSITIVE_INFINITY;
      await wait(Math.max(0, Math.min(every, end - Date.now())), undefined, { signal });
      tell(Math.min(Date.now() - start.getTime(), firstMilliseconds) / 1000, firstMilliseconds / 1000);
      const observed = await readCounts(stage, [...running.values()], start);
      const faultsByRule = new Map(
        observed.flatMap(({ trial, old, fresh }) => {
          const why = findCanaryFault(old, fresh);
          return why === undefined ? [] : [[trial.rule, why] as const];
        }),
      );
      const isOver = Date.now() >= lastDecision;
      const withFewReviews = isOver ? observed.filter(({ fresh }) => fresh.reviews < minimumCanaryReviews) : [];
      const evidence = new Map<string, string>();
      for (const { trial, fresh } of faultsByRule.size === 0 ? withFewReviews : []) {
        const { cases, faults } = await runCases(trial.rule, trial.fresh);
        if (fresh.errors > 0)
          faultsByRule.set(trial.rule, `it failed ${fresh.errors} of its ${formatCount(fresh.calls, "review")}`);
        else if (faults.length > 0) faultsByRule.set(trial.rule, `its cases fail: ${faults.join("; ")}`);
        else if (fresh.reviews + cases > 0)
          evidence.set(trial.rule, `${formatCount(fresh.reviews, "review")}, ${formatCount(cases, "case")}, 0 faults`);
      }
      if (faultsByRule.size > 0) {
        const others = [...faultsByRule.keys()].join(", ");
        await rollBackCanaries(
          ({ rule }) => faultsByRule.get(rule) ?? `it can only be promoted together with ${others}`,
        );
        break;
      }
      for (const { trial, fresh } of observed)
        if (fresh.reviews >= minimumCanaryReviews && !enoughReviewsAt.has(trial.rule))
          enoughReviewsAt.set(trial.rule, Date.now());
      if (Date.now() < firstDecision) continue;
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

/** Says why a canary ends undecided: the new version had no reviews and no cases, or the old one had no reviews. */
const describeMissingReviews = ({ old }: CanaryVersionPair, freshReviews: number, stage: string) =>
  freshReviews === 0
    ? "it had no reviews, and Lambda can run none of its cases; deploy once without --canary"
    : `version ${old} logged no reviews in ${getFunctionsLogGroup(stage)} to compare it with; deploy once without --canary`;

/**
 * Ends a canary: points the rule's alias at one of the two versions. If another command has moved the alias, changes
 * nothing and returns a sentence.
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

/** Reads what the two versions of each canary have done since it began. */
const readCounts = async (stage: CanaryStage, trials: CanaryVersionPair[], since: Date) => {
  const now = new Date();
  const versions = trials.flatMap(({ rule, old, fresh }) =>
    [old, fresh].map((version) => ({ version, name: stage.functions.getFunctionName(rule) })),
  );
  const queries = versions.map(({ name, version }) => [`${name}:${version}`, buildCrashQuery(name, version)]);
  const [crashes, rows]: [Record<string, number>, LogQueryRow[]] = await Promise.all([
    stage.metrics.ask(Object.fromEntries(queries), since, now),
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
 * A query of the functions' log by version. A new version has more cold starts than the old one, so the time of a start
 * (Init) is subtracted. Only reviews with a valid key have the field Cluster.
 */
const countsByVersion = `fields Latency - Init as own
| filter ispresent(Cluster)
| stats sum(Reviews) as reviews, sum(Denials) as denials, sum(Errors) as failures, pct(own, 99) as p99 by Function, Version`;

/** Builds a query for the number of crashes, from Lambda's metric: a crashed function logs no review. */
const buildCrashQuery = (name: string, version: string): CloudWatchMetricQuery => {
  const dimensions = { FunctionName: name, Resource: `${name}:live`, ExecutedVersion: version };
  return { namespace: "AWS/Lambda", metric: "Errors", dimensions, stat: "Sum" };
};

// A fresh version has a fault if its errors, its denials or its latency exceed their limits.
const minimumErrors = 3; // fewer errors are no fault, whatever their share
/** The share of failed reviews may be twice the old version's, plus this share. */
const toleratedErrorShare = 0.01;
const maxDenialShareDifference = 0.05;
const maxLatencyFactor = 3; // a latency is a fault only if it also exceeds the next limit
const maxLatencyIncreaseMilliseconds = 250;

/** Compares a fresh version with the old one. Describes its fault; undefined if it has none, or has too few reviews. */
export const findCanaryFault = (old: CanaryVersionCounts, fresh: CanaryVersionCounts): string | undefined => {
  const oldErrorShare = old.errors / Math.max(1, old.calls);
  const freshErrorShare = fresh.errors / Math.max(1, fresh.calls);
  if (fresh.errors >= minimumErrors && freshErrorShare > 2 * oldErrorShare + toleratedErrorShare) {
    const comparison =
      old.calls > 0 ? `the version before ${formatShare(oldErrorShare)}` : "nothing is known of the version before";
    return `it fails ${formatShare(freshErrorShare)} of its reviews, and ${comparison}`;
  }
  const oldDenialShare = old.denials / Math.max(1, old.reviews);
  const freshDenialShare = fresh.denials / Math.max(1, fresh.reviews);
  if (isSignificant(old, fresh) && Math.abs(freshDenialShare - oldDenialShare) > maxDenialShareDifference)
    return `it denies ${formatShare(freshDenialShare)} of its reviews, and the version before ${formatShare(oldDenialShare)}`;
  const haveEnoughReviews = fresh.reviews >= minimumCanaryReviews && old.reviews >= minimumCanaryReviews;
  const isSlower = fresh.p99 > maxLatencyFactor * old.p99 && fresh.p99 > old.p99 + maxLatencyIncreaseMilliseconds;
  if (haveEnoughReviews && isSlower)
    return `one review in a hundred takes it ${Math.round(fresh.p99)} ms, and the version before ${Math.round(old.p99)} ms`;
  return undefined;
};

/** Reports whether the shares of denials differ by more than chance: by four standard deviations and three reviews. */
const isSignificant = (old: CanaryVersionCounts, fresh: CanaryVersionCounts): boolean => {
  if (fresh.reviews < 10 || old.reviews < 10) return false;
  const pooledShare = (old.denials + fresh.denials) / (old.reviews + fresh.reviews);
  const deviation = Math.sqrt(pooledShare * (1 - pooledShare) * (1 / old.reviews + 1 / fresh.reviews));
  const difference = Math.abs(fresh.denials / fresh.reviews - old.denials / old.reviews);
  return deviation > 0 && difference / deviation > 4 && difference * fresh.reviews >= 3;
};

/** Formats a share in percent, for instance "0.5%" or "12%". */
const formatShare = (share: number) => `${(100 * share).toFixed(share < 0.1 && share > 0 ? 1 : 0)}%`;
