import { toMap } from "#lib/json.ts";
import type { Case } from "#lib/recording/recording.ts";
import type { AdmissionReview } from "#lib/review.ts";
import { buildReview, restoreReview } from "../catalogue/cases.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { toSentence } from "../cli/complaint.ts";
import { type ProjectRules, readAllRules } from "../project/project-rules.ts";
import { type DecisionAspect, listDifferingAspects, type ReplayedReviewOutcome } from "./answers.ts";
import type { ReplayRecording, UnreadableRecording } from "./recordings.ts";
import type { ReplaySide, ReviewToReplay } from "./sides.ts";

/** The answers of two versions to a recording, and in what they differ. */
export type ReplayedRecordingResult =
  | ({ state: "unreadable" } & UnreadableRecording)
  | ({
      state: ReplayComparisonState;
      rule: string;
      cluster?: string | undefined;
      differs: DecisionAspect[];
      answers: [ReplayedReviewOutcome, ReplayedReviewOutcome];
      /** The recording has placeholders instead of free text. The cluster's verdict may have depended on that text. */
      redacted?: true;
    } & CasePlace);

/**
 * The result of replaying a review on two versions. `neither`: neither version evaluates the rule. `unplayed`: at
 * least one version failed to answer.
 */
export type ReplayComparisonState = "alike" | "differs" | "neither" | "unplayed";

/** Where a case is, and the case's name. */
interface CasePlace {
  file: string;
  line: number;
  name: string;
}

/** The two versions to compare, and which recordings are replayed. */
interface ReplayOptions {
  sides: readonly [ReplaySide, ReplaySide];
  /** Replays only these rules; all rules if empty. If there is only one, cases that name no rule belong to it. */
  rules: readonly string[];
  /** The cluster whose settings are used, instead of the cluster in which a review was recorded. */
  cluster: string | undefined;
  /** Both versions use the settings in the recording instead of their own settings. */
  useRecordedSettings: boolean;
}

const maxConcurrentReplays = 8;

/** Sends each recording to both compared versions. Yields the compared answers in the order of the recordings. */
export async function* replayAll(
  recordings: AsyncIterable<ReplayRecording | UnreadableRecording>,
  options: ReplayOptions,
): AsyncGenerator<ReplayedRecordingResult> {
  const pending: Promise<ReplayedRecordingResult>[] = [];
  for await (const recording of recordings) {
    const rule = "entry" in recording ? getRuleName(recording, options) : "";
    // A case whose rule isn't known (undefined) isn't skipped: its result says that --rules must name the rule.
    if ("entry" in recording && rule !== undefined && options.rules.length > 0 && !options.rules.includes(rule))
      continue;
    const result =
      "entry" in recording
        ? replay(recording, rule, options)
        : Promise.resolve({ state: "unreadable" as const, ...recording });
    // If a replay fails, `yield await` throws its error. Until then, this prevents an unhandled rejection.
    result.catch(() => {});
    pending.push(result);
    if (pending.length >= maxConcurrentReplays) yield await (pending.shift() as Promise<ReplayedRecordingResult>);
  }
  for (const result of pending) yield await result;
}

const getRuleName = ({ rule }: ReplayRecording, { rules }: ReplayOptions) =>
  rule ?? (rules.length === 1 ? rules[0] : undefined);

/** Sends one recording to both versions and compares their answers. */
const replay = async (
  recording: ReplayRecording,
  rule: string | undefined,
  options: ReplayOptions,
): Promise<ReplayedRecordingResult> => {
  const { file, line, entry } = recording;
  const createUnreadable = (sentence: string): ReplayedRecordingResult => ({
    state: "unreadable",
    file,
    line,
    sentence,
  });
  if (rule === undefined) return createUnreadable("doesn't say which rule it is of; --rules must name that one");
  let review: AdmissionReview;
  try {
    review = await restoreCaseReview(entry, rule);
  } catch (error) {
    return createUnreadable(`is no case: ${toSentence(error)}`);
  }
  const cluster = options.cluster ?? recording.cluster;
  // A case written by hand is always replayed with the settings that it states.
  const isHandWritten = recording.rule === undefined;
  const request: ReviewToReplay = {
    entry,
    rule,
    cluster,
    review,
    useRecordedSettings: options.useRecordedSettings || isHandWritten,
  };
  const [left, right] = await Promise.all(options.sides.map((side) => side.answer(request)));
  if (left === undefined || right === undefined) throw new Error("there are two sides");
  const { redacted } = toMap(entry.recorded);
  const base = {
    file,
    line,
    name: entry.name,
    rule,
    cluster,
    answers: [left, right] as [ReplayedReviewOutcome, ReplayedReviewOutcome],
    ...(redacted === true && { redacted: true as const }),
  };
  return { ...base, ...compareAnswers(left, right) };
};

/** Compares the decisions (`made`) of two versions. If one version failed to answer (`fault`), nothing is compared. */
const compareAnswers = (
  left: ReplayedReviewOutcome,
  right: ReplayedReviewOutcome,
): { state: ReplayComparisonState; differs: DecisionAspect[] } => {
  if ("fault" in left || "fault" in right) return { state: "unplayed", differs: [] };
  if ("made" in left && "made" in right) {
    const differs = listDifferingAspects(left, right);
    return { state: differs.length > 0 ? "differs" : "alike", differs };
  }
  // A version whose answer is `absent` doesn't evaluate the rule, for instance because it doesn't have the rule.
  const neitherEvaluates = "absent" in left && "absent" in right;
  return { state: neitherEvaluates ? "neither" : "differs", differs: [] };
};

/**
 * Returns a case's review. A recorded case has the whole request. A case written by hand has only a part of it; the
 * rest, such as the resource, follows from the rule's `match`.
 */
const restoreCaseReview = async (ruleCase: Case, rule: string): Promise<AdmissionReview> =>
  ruleCase.request
    ? restoreReview({ ...ruleCase, request: ruleCase.request })
    : buildReview(await findListedRule(rule), ruleCase);

let projectRules: Promise<ProjectRules> | undefined;

/** Returns the rule whose `match` gives the parts of a request that a case written by hand leaves out. */
const findListedRule = async (name: string): Promise<CatalogueRule> => {
  projectRules ??= readAllRules();
  const { catalogue } = await projectRules;
  const found = catalogue.find((listed) => listed.name === name);
  if (found) return found;
  throw new Error(`the project has no rule "${name}", which would complete the request of the case`);
};
