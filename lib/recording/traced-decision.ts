import type { EvaluateRequest } from "../decide.ts";
import type { Rule } from "../rule.ts";
import type { noteAnswers } from "./notes.ts";
import type { FieldReadTracker } from "./reads.ts";
import type { RecordedEvaluation } from "./recording.ts";
import type { AnswerRepeater, createAnswerRepeater } from "./repeated-answers.ts";

/** The code that not every recorder needs. A bundle has only what its rule needs; all of it is in complete-parts.ts. */
export interface OptionalRecorderFunctions {
  evaluate: EvaluateRequest;
  /** The functions that note and repeat the answers to a rule's questions; required for rules with needs. */
  answers?: { noteAnswers: typeof noteAnswers; createAnswerRepeater: typeof createAnswerRepeater };
}

export interface EvaluationReadsAndAnswers {
  reads: FieldReadTracker;
  /** The answers that the rule got from the cluster and services; undefined if the rule has no needs. */
  answers?: AnswerRepeater | undefined;
}

/**
 * Evaluates the rule again, on views of its inputs, to find out which texts the rule reads. The outcome is not used.
 */
export const repeatEvaluationToTrackReads = async (
  { rule, phase, request, context, needs }: RecordedEvaluation,
  reads: FieldReadTracker,
  parts: OptionalRecorderFunctions,
): Promise<EvaluationReadsAndAnswers> => {
  const answers = needs && parts.answers?.createAnswerRepeater(needs);
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
  const capabilities = answers?.watch(reads);
  await parts.evaluate({ ...rule, [phase]: evaluateWatched }, phase, request, {
    ...context,
    mode: "enforce",
    capabilities,
  });
  return { reads, answers };
};
