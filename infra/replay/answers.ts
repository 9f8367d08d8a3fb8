import { isDeepStrictEqual } from "node:util";
import type { EnforcementMode } from "#lib/core/evaluation.ts";
import { toMap } from "#lib/json.ts";
import type { Case } from "#lib/recording/recording.ts";
import { fitAuditAnnotationKeys, fitWarnings, type KubernetesObject, type Status } from "#lib/review.ts";
import { applyOutcomePatch, parseDecision } from "../catalogue/case-differences.ts";
import { toSentence } from "../cli/complaint.ts";

/** What a rule decides about a review. The rule's mode (enforce, warn or audit) doesn't influence it. */
export interface ReplayDecision {
  verdict: "allowed" | "changed" | "denied";
  message?: string;
  code?: number;
  reason?: string;
  /** `details` of the Status object; absent if they aren't known, as in a case written by hand. */
  details?: Status["details"] | undefined;
  warnings: string[];
  audit: Record<string, string>;
  /** The object after the rule's changes; absent if the request was denied or only validated. */
  object?: unknown;
}

/**
 * One version's answer to a review. `absent` says why the version doesn't evaluate the rule, `fault` why the version
 * failed to answer.
 */
export type ReplayedReviewOutcome = KnownAnswer | { absent: string } | { fault: string };

/** An answer that contains a decision. `mode` is the rule's mode; absent if it is unknown or doesn't matter. */
interface KnownAnswer {
  /** The decision that the version made. */
  made: ReplayDecision;
  mode?: EnforcementMode;
}

/** Returns the answer that a case records: denied, changed or allowed. */
export const readRecordedAnswer = (ruleCase: Case): ReplayedReviewOutcome => {
  const warnings = fitWarnings(ruleCase.warnings ?? []);
  const audit = fitAuditAnnotationKeys(ruleCase.audit ?? {});
  const { refused, becomes, mutate: before, code = 403, reason = "Forbidden", details } = ruleCase;
  if (refused !== undefined) {
    // Details are compared if the answer has the member `details`, also with the value undefined. A recording without
    // details says that there were none; a case written by hand leaves them open.
    const hasDetails = details !== undefined || ruleCase.recorded !== undefined;
    const status = { message: refused, code, ...(reason !== null && { reason }), ...(hasDetails && { details }) };
    return { made: { verdict: "denied", ...status, warnings, audit } };
  }
  if (ruleCase.admitted === undefined && becomes === undefined) return { fault: "it has no recorded answer" };
  // A case for `validate` has no object `before`. A case without `becomes` expects that the object doesn't change.
  return { made: { ...toAdmission(before, becomes ?? before), warnings, audit } };
};

/** Parses what a function returned for a case's review: an AdmissionReview, or a Status if there is no decision. */
export const parseReplayedReviewOutcome = (answer: unknown, ruleCase: Case, uid: string): ReplayedReviewOutcome => {
  const { kind, code, message } = toMap(answer);
  if (kind === "Status" && code === 404) return { absent: `has nothing to ${ruleCase.mutate ? "mutate" : "validate"}` };
  if (kind === "Status") return { fault: String(message) };
  try {
    const decision = parseDecision(answer, uid);
    if (decision === undefined)
      return { fault: `its answer is not an AdmissionReview: ${JSON.stringify(answer)?.slice(0, 200)}` };
    const { allowed, status, warnings = [], audit = {} } = decision.outcome;
    if (allowed)
      return {
        made: {
          ...toAdmission(ruleCase.mutate, applyOutcomePatch(ruleCase.mutate, decision.outcome)),
          warnings,
          audit,
        },
      };
    const { message = "", code = 403, reason, details } = status ?? {};
    return { made: { verdict: "denied", message, code, ...(reason && { reason }), details, warnings, audit } };
  } catch (error) {
    return { fault: `its patch can't be applied: ${toSentence(error).slice(0, 200)}` };
  }
};

const toAdmission = (
  before: KubernetesObject | undefined,
  after: unknown,
): Pick<ReplayDecision, "verdict" | "object"> => {
  // A case for `validate` has no object that could change.
  if (before === undefined) return { verdict: "allowed" };
  return { verdict: isDeepStrictEqual(before, after) ? "allowed" : "changed", object: after };
};

/** A part of an answer, such as its message or object, that replay compares with the same part of another answer. */
export type DecisionAspect = keyof ReplayDecision | "mode";

const aspects = ["verdict", "message", "code", "reason", "warnings", "audit", "object"] as const;

/**
 * Lists the parts in which two answers differ. Patches count as different if they lead to different objects. Modes are
 * compared only if both modes are known and at least one verdict isn't `allowed`.
 */
export const listDifferingAspects = (left: KnownAnswer, right: KnownAnswer): DecisionAspect[] => {
  const [leftDecision, rightDecision] = [left.made, right.made];
  const haveDetails = "details" in leftDecision && "details" in rightDecision;
  const areBothAllowed = leftDecision.verdict === "allowed" && rightDecision.verdict === "allowed";
  const areModesCompared = left.mode !== undefined && right.mode !== undefined && !areBothAllowed;
  return [
    ...aspects.filter((aspect) => {
      if (aspect === "object" && (!("object" in leftDecision) || !("object" in rightDecision))) return false;
      return !isDeepStrictEqual(leftDecision[aspect], rightDecision[aspect]);
    }),
    ...(haveDetails && !isDeepStrictEqual(leftDecision.details, rightDecision.details) ? ["details" as const] : []),
    ...(areModesCompared && left.mode !== right.mode ? ["mode" as const] : []),
  ];
};
