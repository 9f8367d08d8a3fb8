import { isDeepStrictEqual } from "node:util";
import type { Mode } from "#lib/decide.ts";
import type { Case } from "#lib/recording/recording.ts";
import { fitAudit, fitWarnings, type KubernetesObject, type Status } from "#lib/review.ts";
import { decisionIn, patched } from "../catalogue/case-differences.ts";
import { sentenceOf } from "../cli/complaint.ts";

/** What a rule makes of a review by itself, whatever mode it is in. */
export interface Made {
  verdict: "allowed" | "changed" | "denied";
  message?: string;
  code?: number;
  reason?: string;
  /** Not there where nobody wrote them down. */
  details?: Status["details"] | undefined;
  warnings: string[];
  audit: Record<string, string>;
  /** What the object is afterwards; where it was denied or only judged, none. */
  object?: unknown;
}

/** What a version makes of a review; nothing where it isn't asked, or where that can't be known. */
export type Answer = Given | { absent: string } | { fault: string };

/** An answer, and in which mode the rule gave it; not there where nobody knows that, or it doesn't matter. */
interface Given {
  made: Made;
  mode?: Mode;
}

/** What was answered when a review was recorded, or what somebody wrote into a case. */
export const recordedIn = (entry: Case): Answer => {
  const warnings = fitWarnings(entry.warnings ?? []);
  const audit = fitAudit(entry.audit ?? {});
  const { refused, becomes, mutate, code = 403, reason = "Forbidden", details } = entry;
  if (refused !== undefined) {
    const isWhole = details !== undefined || entry.recorded !== undefined;
    const status = { message: refused, code, ...(reason !== null && { reason }), ...(isWhole && { details }) };
    return { made: { verdict: "denied", ...status, warnings, audit } };
  }
  if (entry.admitted === undefined && becomes === undefined) return { fault: "it doesn't say what was answered" };
  return { made: { ...admitted(mutate, becomes ?? mutate), warnings, audit } };
};

/** What a function answered. */
export const madeIn = (answer: unknown, entry: Case, uid: string): Answer => {
  const { kind, code, message } = Object(answer);
  // There is no such phase: the rule doesn't have it.
  if (kind === "Status" && code === 404) return { absent: `has nothing to ${entry.mutate ? "mutate" : "validate"}` };
  if (kind === "Status") return { fault: String(message) };
  try {
    const decision = decisionIn(answer, uid);
    if (decision === undefined) return { fault: `it answers no review: ${JSON.stringify(answer)?.slice(0, 200)}` };
    const { allowed, status, warnings = [], audit = {} } = decision.outcome;
    if (allowed)
      return { made: { ...admitted(entry.mutate, patched(entry.mutate, decision.outcome)), warnings, audit } };
    const { message = "", code = 403, reason, details } = status ?? {};
    return { made: { verdict: "denied", message, code, ...(reason && { reason }), details, warnings, audit } };
  } catch (error) {
    return { fault: `its patch can't be applied: ${sentenceOf(error).slice(0, 200)}` };
  }
};

const admitted = (before: KubernetesObject | undefined, after: unknown): Pick<Made, "verdict" | "object"> => {
  if (before === undefined) return { verdict: "allowed" };
  return { verdict: isDeepStrictEqual(before, after) ? "allowed" : "changed", object: after };
};

/** In what two answers can differ. */
export type Aspect = keyof Made | "mode";

const aspects = ["verdict", "message", "code", "reason", "warnings", "audit", "object"] as const;

/** In what two answers differ. Patches are compared by what they make, and modes where the rule has something to say. */
export const differing = (left: Given, right: Given): Aspect[] => {
  const [one, other] = [left.made, right.made];
  const isWhole = "details" in one && "details" in other;
  const isSilent = one.verdict === "allowed" && other.verdict === "allowed";
  const hasMode = left.mode !== undefined && right.mode !== undefined && !isSilent;
  return [
    ...aspects.filter((aspect) => {
      if (aspect === "object" && (!("object" in one) || !("object" in other))) return false;
      return !isDeepStrictEqual(one[aspect], other[aspect]);
    }),
    ...(isWhole && !isDeepStrictEqual(one.details, other.details) ? ["details" as const] : []),
    ...(hasMode && left.mode !== right.mode ? ["mode" as const] : []),
  ];
};
