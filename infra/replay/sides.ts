import { isDeepStrictEqual } from "node:util";
import type { EnforcementMode } from "#lib/core/evaluation.ts";
import { findException, type RuleException } from "#lib/core/exceptions.ts";
import { getOwn, isMap } from "#lib/json.ts";
import type { Case } from "#lib/recording/recording.ts";
import type { AdmissionReview } from "#lib/review.ts";
import type { Phase } from "#lib/rule.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import { getCasePhase } from "../catalogue/cases.ts";
import { parseReplayedReviewOutcome, type ReplayedReviewOutcome, readRecordedAnswer } from "./answers.ts";

/** A recorded review, and the rule and cluster with which it is replayed. */
export interface ReviewToReplay {
  entry: Case;
  rule: string;
  /** The cluster whose settings are used. If undefined, the evaluating version must have only one cluster. */
  cluster: string | undefined;
  review: AdmissionReview;
  /** Evaluates the review with the settings in its recording, not with the version's settings for the cluster. */
  useRecordedSettings: boolean;
}

/** One of the two sources of answers that a replay compares: the recordings, or a version of the rules. */
export interface ReplaySide {
  name: string;
  answer(request: ReviewToReplay): Promise<ReplayedReviewOutcome>;
}

/** The function that evaluates a rule in a version: the function's name, and its part of postern.yaml. */
export interface ServingFunction {
  name: string;
  config: unknown;
}

type NoAnswer = { absent: string } | { fault: string };

/** A version of the rules whose functions can be invoked: a release, a commit, a folder or the working tree. */
export interface ReplayableVersion {
  name: string;
  find(rule: string, phase: Phase): Promise<ServingFunction | NoAnswer>;
  invoke(servingFunction: ServingFunction, event: object): Promise<{ answer: unknown } | NoAnswer>;
}

/** The side of a replay that returns the recorded answers and evaluates no rules. */
export const recordedSide: ReplaySide = { name: "recorded", answer: async ({ entry }) => readRecordedAnswer(entry) };

/** Returns a side of a replay that invokes a version's functions directly, without an access key and a cluster. */
export const createReplaySideOfVersion = (version: ReplayableVersion): ReplaySide => ({
  name: version.name,
  answer: async (request) => {
    const { entry, rule, cluster, useRecordedSettings, review } = request;
    const servingFunction = await version.find(rule, getCasePhase(entry));
    if (!("config" in servingFunction)) return servingFunction;
    // With the recorded settings, the rule is evaluated even if the version has turned it off.
    const configured: ConfiguredRule = useRecordedSettings
      ? { mode: "enforce", settings: entry.settings ?? {} }
      : findRuleModeAndSettings(servingFunction.config, rule, cluster, entry.variant);
    if (!("settings" in configured)) return configured;
    // The event names no cluster, so the function doesn't know the cluster's exceptions.
    const now = entry.now === undefined ? new Date() : new Date(entry.now);
    const exception = findException(configured.exceptions, review.request, now);
    if (exception) return { ...readRecordedAnswer(admitByException(entry, exception)), mode: configured.mode };
    // A group's function evaluates the rule that the event names as `member`.
    const member = isGroupWith(servingFunction.config, rule) ? rule : undefined;
    const result = await version.invoke(servingFunction, {
      ...buildReplayEvent(request),
      settings: configured.settings,
      // Only `deploy` writes a cluster's Kubernetes version into the config. Without it, the recorded one is used.
      kubernetes: configured.kubernetes ?? entry.kubernetes,
      member,
    });
    if (!("answer" in result)) return result;
    const answer = parseReplayedReviewOutcome(result.answer, entry, review.request.uid);
    // An answer without a decision (`made`) gets no mode. With recorded settings, an answer gets none either, because
    // the mode in `configured` isn't the version's own.
    return "made" in answer && !useRecordedSettings ? { ...answer, mode: configured.mode } : answer;
  },
});

/** Returns a case in which the request was admitted because of an exception. */
const admitByException = ({ refused: _, becomes: __, ...entry }: Case, exception: string): Case => ({
  ...entry,
  admitted: true,
  warnings: [],
  audit: { exception },
});

/**
 * Returns the event that a function is invoked with. The event names no cluster. With a cluster, the answer would
 * depend on the cluster's mode, and the review would count among the cluster's reviews.
 */
const buildReplayEvent = ({ entry, review }: ReviewToReplay): object => {
  const { version, request } = review;
  // `needs.reads` lists the only reads that don't fail; a recording without `needs` had none. A case written by hand
  // has no such list: its reads don't fail, and find only the objects in `needs`.
  const { variant, needs = entry.recorded ? { reads: [] } : {}, now } = entry;
  return {
    phase: getCasePhase(entry),
    variant,
    needs,
    now,
    review: { kind: "AdmissionReview", apiVersion: `admission.k8s.io/${version}`, request },
  };
};

/**
 * How a version of the rules, such as a release, evaluates a rule for a cluster. `kubernetes`: the cluster's Kubernetes
 * version in the config, unchecked. `absent` says why it doesn't evaluate the rule; `fault` says why this isn't known.
 */
type ConfiguredRule =
  | { mode: EnforcementMode; settings: object; kubernetes?: unknown; exceptions?: readonly RuleException[] }
  | { absent: string }
  | { fault: string };

/** Reports whether a function's configuration is that of a group, and the group contains the rule. */
const isGroupWith = (config: unknown, rule: string): boolean => getOwn(getOwn(config, "alone"), rule) !== undefined;

/** Returns the name of the function that evaluates a rule: its group's if it mutates in a group, otherwise its own. */
export const findServingFunctionName = (
  configs: ReadonlyMap<string, unknown>,
  rule: string,
  phase: Phase,
): string | undefined => {
  const group = phase === "mutate" ? [...configs].find(([, config]) => isGroupWith(config, rule)) : undefined;
  return group?.[0] ?? (configs.has(rule) ? rule : undefined);
};

/** Reports whether a function accepts no key of a cluster: postern.yaml no longer names the cluster. */
const isRefused = (setup: unknown): boolean => isDeepStrictEqual(getOwn(setup, "keyVersions"), []);

const modes: unknown[] = ["enforce", "warn", "audit"];

/**
 * Returns how a version's configuration evaluates a rule for a cluster and a variant: mode, settings, Kubernetes
 * version and exceptions. If the rule isn't evaluated there, returns the reason.
 */
export const findRuleModeAndSettings = (
  functionConfig: unknown,
  rule: string,
  clusterName: string | undefined,
  variant: string | undefined,
): ConfiguredRule => {
  const clusters = getOwn(functionConfig, "clusters");
  const general = getOwn(functionConfig, "usual");
  const acceptedClusters = (isMap(clusters) ? Object.entries(clusters) : []).filter(([, setup]) => !isRefused(setup));
  const names = acceptedClusters.map(([name]) => name);
  const isOnInUnnamedClusters = general !== undefined && getOwn(general, "mode") !== "off";
  // If no cluster has a setup of its own, the general one is used. In messages, this text replaces the cluster's name.
  const everyCluster = names.length === 0 && general !== undefined ? "every cluster" : undefined;
  const cluster = clusterName ?? everyCluster ?? (names.length === 1 && !isOnInUnnamedClusters ? names[0] : undefined);
  if (cluster === undefined) {
    const choices = [...names, ...(isOnInUnnamedClusters ? ["or another one"] : [])].join(", ");
    return { fault: `--cluster must say in which cluster it is asked: ${choices}` };
  }
  // A cluster with the same setup as another cluster has only the name of that one.
  const setupOrName = getOwn(clusters, cluster) ?? general;
  const found = typeof setupOrName === "string" ? getOwn(clusters, setupOrName) : setupOrName;
  if (found === undefined || isRefused(found))
    return { absent: `has no cluster "${cluster}"; it has ${names.join(", ")}` };
  // A group's function has in `settings` the setup of each rule, by the rule's name, with its exceptions in `exempt`.
  const isGroup = isGroupWith(functionConfig, rule);
  const setup = isGroup ? getOwn(getOwn(found, "settings"), rule) : found;
  const [mode, settings] = [getOwn(setup, "mode"), getOwn(setup, "settings")];
  if (mode === "off" || getOwn(found, "mode") === "off") return { absent: `has it off in ${cluster}` };
  if (!modes.includes(mode) || !isMap(settings)) return { fault: `its settings in ${cluster} can't be read` };
  const kubernetes = getOwn(found, "kubernetes");
  const exceptions = getOwn(isGroup ? getOwn(setup, "exempt") : setup, "exceptions");
  const configured = {
    // The cast is safe: `modes.includes(mode)` was checked above.
    mode: mode as EnforcementMode,
    settings,
    ...(kubernetes !== undefined && { kubernetes }),
    // The cast is safe: `postern build` wrote the exceptions.
    ...(Array.isArray(exceptions) && { exceptions: exceptions as RuleException[] }),
  };
  if (variant === undefined) return configured;

  const generalVariantSettings = getOwn(getOwn(functionConfig, "variants"), variant);
  const variantSettings = getOwn(getOwn(found, "variants") ?? getOwn(functionConfig, "variants"), variant);
  if (variantSettings === undefined) return { absent: `has no variant ${variant} of it` };
  const mergedSettings = mergeWithDefaults(settings, variantSettings);
  // The replay sends `mergedSettings` to the function, which overrides them with the variant's general settings. If
  // this changes them, the function would not evaluate with the settings of this cluster: the replay isn't possible.
  if (!isDeepStrictEqual(mergeWithDefaults(mergedSettings, generalVariantSettings), mergedSettings))
    return { fault: `the settings that variant ${variant} has in ${cluster} can't be sent` };
  return { ...configured, settings: mergedSettings };
};
