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

export type ReplayedRecordingResult =
  | ({ state: "unreadable" } & UnreadableRecording)
  | ({
      state: ReplayComparisonState;
      rule: string;
      cluster?: string | undefined;
      differs: DecisionAspect[];
      answers: [ReplayedReviewOutcome, ReplayedReviewOutcome];
      /** The recording has placeholders for redacted text, so its original verdict may have been another. */
      redacted?: true;
    } & Place);

/**
 * The result of replaying a review on two versions. `neither`: neither version evaluates the rule; `unplayed`: an
 * answer could not be determined.
 */
export type ReplayComparisonState = "alike" | "differs" | "neither" | "unplayed";

interface Place {
  file: string;
  line: number;
  name: string;
}

interface ReplayOptions {
  sides: readonly [ReplaySide, ReplaySide];
  /** Replays only these rules; all if empty. A single one is also the rule of cases that name none. */
  rules: readonly string[];
  /** A cluster's name, used instead of the one that a review was recorded in. */
  cluster: string | undefined;
  /** Whether both versions use the settings of the recording, not their own. */
  asRecorded: boolean;
}

const atOnce = 8;

/** Sends recordings to both compared versions, and compares their answers in order; holds at most `atOnce`. */
export async function* replayAll(
  recordings: AsyncIterable<ReplayRecording | UnreadableRecording>,
  terms: ReplayOptions,
): AsyncGenerator<ReplayedRecordingResult> {
  const underWay: Promise<ReplayedRecordingResult>[] = [];
  for await (const recording of recordings) {
    const rule = "entry" in recording ? getRuleName(recording, terms) : "";
    if ("entry" in recording && rule !== undefined && terms.rules.length > 0 && !terms.rules.includes(rule)) continue;
    const result =
      "entry" in recording
        ? replay(recording, rule, terms)
        : Promise.resolve({ state: "unreadable" as const, ...recording });
    // `yield await` throws the error; this prevents an unhandled rejection before that.
    result.catch(() => {});
    underWay.push(result);
    if (underWay.length >= atOnce) yield await (underWay.shift() as Promise<ReplayedRecordingResult>);
  }
  for (const result of underWay) yield await result;
}

const getRuleName = ({ rule }: ReplayRecording, { rules }: ReplayOptions) =>
  rule ?? (rules.length === 1 ? rules[0] : undefined);

const replay = async (
  recording: ReplayRecording,
  rule: string | undefined,
  terms: ReplayOptions,
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
  const cluster = terms.cluster ?? recording.cluster;
  // A case written by hand is replayed as recorded: with the settings that it states.
  const isWritten = recording.rule === undefined;
  const request: ReviewToReplay = { entry, rule, cluster, review, asRecorded: terms.asRecorded || isWritten };
  const [left, right] = await Promise.all(terms.sides.map((side) => side.answer(request)));
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

const compareAnswers = (
  left: ReplayedReviewOutcome,
  right: ReplayedReviewOutcome,
): { state: ReplayComparisonState; differs: DecisionAspect[] } => {
  if ("fault" in left || "fault" in right) return { state: "unplayed", differs: [] };
  if ("made" in left && "made" in right) {
    const differs = listDifferingAspects(left, right);
    return { state: differs.length > 0 ? "differs" : "alike", differs };
  }
  return { state: "absent" in left && "absent" in right ? "neither" : "differs", differs: [] };
};

/** Restores a case's review. A recording has the whole request; a hand-written case is completed with its rule. */
const restoreCaseReview = async (entry: Case, rule: string): Promise<AdmissionReview> =>
  entry.request ? restoreReview({ ...entry, request: entry.request }) : buildReview(await findListedRule(rule), entry);

let rules: Promise<ProjectRules> | undefined;

const findListedRule = async (name: string): Promise<CatalogueRule> => {
  rules ??= readAllRules();
  const { catalogue } = await rules;
  const found = catalogue.find((listed) => listed.name === name);
  if (found) return found;
  throw new Error(`there is no rule "${name}" here that would say what it leaves open of its request`);
};
