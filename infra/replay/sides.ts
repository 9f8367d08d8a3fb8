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

export interface ReviewToReplay {
  entry: Case;
  rule: string;
  /** The cluster whose settings and mode count; undefined means the only cluster that the version has. */
  cluster: string | undefined;
  review: AdmissionReview;
  /** Evaluates the review with the settings of its recording, instead of those that the version has for the cluster. */
  asRecorded: boolean;
}

/** One of the two sources of answers that a replay compares: the recordings, or a version of the rules. */
export interface ReplaySide {
  name: string;
  answer(request: ReviewToReplay): Promise<ReplayedReviewOutcome>;
}

/** The function that answers for a rule in a release, commit or folder: its name and its part of postern.yaml. */
export interface ServingFunction {
  name: string;
  config: unknown;
}

type NoAnswer = { absent: string } | { fault: string };

/** One state of all rules whose functions can be invoked: a release, a commit, a folder or the working tree. */
export interface ReplayableVersion {
  name: string;
  find(rule: string, phase: Phase): Promise<ServingFunction | NoAnswer>;
  invoke(part: ServingFunction, event: object): Promise<{ answer: unknown } | NoAnswer>;
}

/** The side of a replay that gives the recorded answers, instead of asking a version of the rules. */
export const recordedSide: ReplaySide = { name: "recorded", answer: async ({ entry }) => readRecordedAnswer(entry) };

/** Returns a side of a replay: it asks a version's functions by direct invocation, without key and cluster. */
export const createReplaySideOfVersion = (version: ReplayableVersion): ReplaySide => ({
  name: version.name,
  answer: async (request) => {
    const { entry, rule, cluster, asRecorded, review } = request;
    const part = await version.find(rule, getCasePhase(entry));
    if (!("config" in part)) return part;
    // A case that states settings is evaluated with them, even if the rule is off.
    const standing: ConfiguredRule = asRecorded
      ? { mode: "enforce", settings: entry.settings ?? {} }
      : findRuleModeAndSettings(part.config, rule, cluster, entry.variant);
    if (!("settings" in standing)) return standing;
    // The event names no cluster, so the function doesn't know the cluster's exceptions.
    const now = entry.now === undefined ? new Date() : new Date(entry.now);
    const exception = findException(standing.exceptions, review.request, now);
    if (exception) return { ...readRecordedAnswer(admit(entry, exception)), mode: standing.mode };
    const member = hasMember(part.config, rule) ? rule : undefined;
    const result = await version.invoke(part, {
      ...buildReplayEvent(request),
      settings: standing.settings,
      // A working tree doesn't know which version a deployment found in the cluster; the recording does.
      kubernetes: standing.kubernetes ?? entry.kubernetes,
      member,
    });
    if (!("answer" in result)) return result;
    const answer = parseReplayedReviewOutcome(result.answer, entry, review.request.uid);
    return "made" in answer && !asRecorded ? { ...answer, mode: standing.mode } : answer;
  },
});

/** Returns a case with the outcome that an exception gives it. */
const admit = ({ refused: _, becomes: __, ...entry }: Case, exception: string): Case => ({
  ...entry,
  admitted: true,
  warnings: [],
  audit: { exception },
});

/**
 * Returns an event that asks for the rule's own verdict. It names no cluster: otherwise the answer would depend on the
 * cluster's mode, and count among the cluster's reviews.
 */
const buildReplayEvent = ({ entry, review }: ReviewToReplay): object => {
  const { version, request } = review;
  // A recording without needs is of a rule that read nothing; a case written by hand states all answers.
  const { variant, needs = entry.recorded ? { reads: [] } : {}, now } = entry;
  return {
    phase: getCasePhase(entry),
    variant,
    needs,
    now,
    review: { kind: "AdmissionReview", apiVersion: `admission.k8s.io/${version}`, request },
  };
};

type ConfiguredRule =
  | { mode: EnforcementMode; settings: object; kubernetes?: unknown; exceptions?: readonly RuleException[] }
  | { absent: string }
  | { fault: string };

const hasMember = (config: unknown, rule: string): boolean => getOwn(getOwn(config, "alone"), rule) !== undefined;

/** Returns the function to call for a rule: for mutating, its group's if there is one; otherwise the rule's own. */
export const findServingFunctionName = (
  configs: ReadonlyMap<string, unknown>,
  rule: string,
  phase: Phase,
): string | undefined => {
  const group = phase === "mutate" ? [...configs].find(([, config]) => hasMember(config, rule)) : undefined;
  return group?.[0] ?? (configs.has(rule) ? rule : undefined);
};

/** Reports whether a setup is of a cluster that postern.yaml no longer names: none of its keys is accepted. */
const isRefused = (setup: unknown): boolean => isDeepStrictEqual(getOwn(setup, "keyVersions"), []);

const modes: unknown[] = ["enforce", "warn", "audit"];

/** Returns the mode, settings and minor version of Kubernetes of a rule in a version's cluster and variant, or why it isn't evaluated there. */
export const findRuleModeAndSettings = (
  functionConfig: unknown,
  rule: string,
  clusterName: string | undefined,
  variant: string | undefined,
): ConfiguredRule => {
  const clusters = getOwn(functionConfig, "clusters");
  const general = getOwn(functionConfig, "usual");
  const all = (isMap(clusters) ? Object.entries(clusters) : []).filter(([, setup]) => !isRefused(setup));
  const names = all.map(([name]) => name);
  const isOn = general !== undefined && getOwn(general, "mode") !== "off";
  const everywhere = names.length === 0 && general !== undefined ? "every cluster" : undefined;
  const cluster = clusterName ?? everywhere ?? (names.length === 1 && !isOn ? names[0] : undefined);
  if (cluster === undefined) {
    const choices = [...names, ...(isOn ? ["or another one"] : [])].join(", ");
    return { fault: `--cluster must say in which cluster it is asked: ${choices}` };
  }
  const named = getOwn(clusters, cluster) ?? general;
  const found = typeof named === "string" ? getOwn(clusters, named) : named;
  if (found === undefined || isRefused(found))
    return { absent: `has no cluster "${cluster}"; it has ${names.join(", ")}` };
  const isGrouped = hasMember(functionConfig, rule);
  const setup = isGrouped ? getOwn(getOwn(found, "settings"), rule) : found;
  const [mode, settings] = [getOwn(setup, "mode"), getOwn(setup, "settings")];
  if (mode === "off" || getOwn(found, "mode") === "off") return { absent: `has it off in ${cluster}` };
  if (!modes.includes(mode) || !isMap(settings)) return { fault: `its settings in ${cluster} can't be read` };
  // The cast is safe: `modes.includes(mode)` was checked above.
  const kubernetes = getOwn(found, "kubernetes");
  const exceptions = getOwn(isGrouped ? getOwn(setup, "exempt") : setup, "exceptions");
  const standing = {
    mode: mode as EnforcementMode,
    settings,
    ...(kubernetes !== undefined && { kubernetes }),
    // The cast is safe: a build wrote them.
    ...(Array.isArray(exceptions) && { exceptions: exceptions as RuleException[] }),
  };
  if (variant === undefined) return standing;

  const usual = getOwn(getOwn(functionConfig, "variants"), variant);
  const variantSettings = getOwn(getOwn(found, "variants") ?? getOwn(functionConfig, "variants"), variant);
  if (variantSettings === undefined) return { absent: `has no variant ${variant} of it` };
  const together = mergeWithDefaults(settings, variantSettings);
  // The function will merge its variant's usual settings over the sent ones. If that would change the sent ones, this
  // replay isn't possible.
  if (!isDeepStrictEqual(mergeWithDefaults(together, usual), together))
    return { fault: `the settings that variant ${variant} has in ${cluster} can't be sent` };
  return { ...standing, settings: together };
};
