import type { EndpointHost } from "../core/endpoint.ts";
import { type EnforcementMode, type EvaluateRequest, evaluateRule, type RuleDecision } from "../core/evaluation.ts";
import "../features.ts";
import type { AnsweredReviewFacts } from "../core/log-line.ts";
import type { AdmissionRequest } from "../review.ts";
import { formatRecording } from "./case-line.ts";
import { noteAnswers } from "./notes.ts";
import type { RecordedCapabilityAnswers } from "./recorded-answers.ts";
import type { RecordedEvaluation, RecordingOrigin } from "./recording.ts";
import type { UnredactedPath } from "./redaction.ts";

/** An answered review that can be recorded. */
export interface RecordedReview {
  origin: Omit<RecordingOrigin, "redacted">;
  request: AdmissionRequest;
  /** The mode in which the rule was evaluated. The recording has the outcome of mode enforce. */
  mode: EnforcementMode;
  /** The answers to the questions that the rule asked; undefined if it has no needs. */
  needs?: RecordedCapabilityAnswers | undefined;
  /**
   * Returns the review as one line of a file of recordings. Free text is redacted, except at the paths `keep`. Throws
   * if the review can't be recorded.
   */
  line(keep?: readonly UnredactedPath[]): Promise<string>;
}

/** The host and the evaluation that an endpoint must use, so that its reviews are recorded. */
export interface RecordingHostAndEvaluation {
  host: EndpointHost;
  evaluate: EvaluateRequest;
}

/**
 * Returns a host and an evaluation that call `record` after each answered review. Failures and direct invocations,
 * which are tests, are left out. For a group, `record` is called for each member, because a case belongs to one rule.
 */
export const createRecorder = (
  host: EndpointHost,
  record: (review: RecordedReview) => void,
): RecordingHostAndEvaluation => {
  /**
   * The evaluations of requests that are not answered yet. The key is the request's userInfo object, which all copies
   * of a request contain.
   */
  const pendingEvaluations = new WeakMap<object, RecordedEvaluation[]>();

  const finishRequest = ({ request, cluster, key, code, version, group }: AnsweredReviewFacts) => {
    // A log line with `group` is that of a member. The group's own line came before it, and finished the request.
    if (!request || group) return;
    const evaluations = pendingEvaluations.get(request.userInfo) ?? [];
    pendingEvaluations.delete(request.userInfo);
    if (code !== 200 || cluster === undefined || key === "direct") return;
    for (const evaluation of evaluations) {
      const { name, now, mode } = evaluation.context;
      const origin = { rule: name, cluster, version, at: now.toISOString() };
      const line: RecordedReview["line"] = (keep) => formatRecording(evaluation, origin, keep);
      record({ origin, request: evaluation.request, mode, needs: evaluation.needs, line });
    }
  };

  return {
    host: {
      ...host,
      writeLogLine: (report) => {
        host.writeLogLine(report);
        finishRequest(report);
      },
    },
    evaluate: (rule, phase, request, context) => {
      const { mode, capabilities } = context;
      if (mode === "off") return evaluateRule(rule, phase, request, context);
      // A rule without needs in a group gets the capabilities of the group's other rules, but asks nothing: so no
      // answers are noted for this rule.
      const notes = POSTERN_NEEDS && rule.needs && capabilities ? noteAnswers(capabilities) : undefined;
      const note = (decision: RuleDecision): RuleDecision => {
        // An exception decided, and the rule wasn't evaluated.
        if (POSTERN_EXCEPTIONS && decision.exception) return decision;
        const before = pendingEvaluations.get(request.userInfo) ?? [];
        const evaluation = { rule, phase, request, context, needs: notes?.noted(), decision };
        pendingEvaluations.set(request.userInfo, [...before, evaluation]);
        return decision;
      };
      const contextWithNotes = notes ? { ...context, capabilities: notes.capabilities } : context;
      const decision = evaluateRule(rule, phase, request, contextWithNotes);
      return decision instanceof Promise ? decision.then(note) : note(decision);
    },
  };
};
