import { evaluateRule } from "../core/evaluation.ts";
import "../features.ts";
import type { Rule } from "../rule.ts";
import type { FieldReadTracker } from "./reads.ts";
import type { RecordedEvaluation } from "./recording.ts";
import { type AnswerRepeater, createAnswerRepeater } from "./repeated-answers.ts";

export interface EvaluationReadsAndAnswers {
  reads: FieldReadTracker;
  /** Repeats the answers that the rule got from the cluster and services; undefined if the rule has no needs. */
  repeater?: AnswerRepeater | undefined;
}

/** Returns the repeater of the answers that a rule got; undefined if it has no needs. */
export const createAnswerRepeaterIfNeeded = ({ needs }: RecordedEvaluation): AnswerRepeater | undefined =>
  POSTERN_NEEDS && needs ? createAnswerRepeater(needs) : undefined;

/** Evaluates the rule again with the answers that it got, to note in `reads` what it reads. Drops the outcome. */
export const repeatEvaluationToTrackReads = async (
  evaluation: RecordedEvaluation,
  reads: FieldReadTracker,
): Promise<EvaluationReadsAndAnswers> => {
  const { rule, phase, request, context } = evaluation;
  const repeater = createAnswerRepeaterIfNeeded(evaluation);
  const { watch } = reads;
  const decide = rule[phase];
  const evaluateWatched: Rule["mutate"] = (object, ruleContext) => {
    const { request, oldObject, settings } = ruleContext;
    const views = { request: watch(request), oldObject: watch(oldObject), settings: watch(settings) };
    const verdict = decide?.call(rule, watch(object), { ...ruleContext, ...views });
    if (verdict instanceof Promise) return verdict.finally(reads.close);
    reads.close();
    return verdict;
  };
  const capabilities = repeater?.openWatched(reads);
  await evaluateRule({ ...rule, [phase]: evaluateWatched }, phase, request, {
    ...context,
    mode: "enforce",
    capabilities,
  });
  return { reads, repeater };
};
