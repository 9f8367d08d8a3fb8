import { Failure } from "../failure.ts";
import { bindNeeds } from "./capabilities.ts";
import "../features.ts";
import { isMap } from "../json.ts";
import { formatError } from "../masking/masked-error.ts";
import type { Capabilities } from "../needs.ts";
import type { AdmissionRequest, KubernetesObject, Patch, ReviewOutcome } from "../review.ts";
import type { Phase, Rule, Verdict } from "../rule.ts";
import { mergeSince } from "../since.ts";
import { findException, type RuleException } from "./exceptions.ts";
import { createDraft } from "./patch.ts";

/** What becomes of a rule's verdict: it applies, or becomes a warning or an audit annotation; "off": no evaluation. */
export type EnforcementMode = "enforce" | "warn" | "audit" | "off";

/** What an evaluation of a rule gets beside the request. A rule may have several webhook entries: its variants. */
export interface RuleEvaluationContext {
  /** The rule's name, which warnings show and which is part of the rule's keys in the ledger. */
  name: string;
  mode: EnforcementMode;
  settings: object;
  /** The cluster's minor version of Kubernetes, such as `1.35`; undefined for the newest. */
  kubernetes?: string | undefined;
  variant?: string | undefined;
  /** The exemptions that have an end date. */
  exceptions?: readonly RuleException[] | undefined;
  now: Date;
  capabilities?: Capabilities | undefined;
}

/** Evaluates a rule for one request. Returns a promise only for rules that wait for answers. */
export type EvaluateRequest = (
  rule: Rule,
  phase: Phase,
  request: AdmissionRequest,
  context: RuleEvaluationContext,
) => RuleDecision | Promise<RuleDecision>;

/** A rule's outcome in its mode; `refused` and `operations` (of the patch) are as if the mode were "enforce". */
export interface RuleDecision {
  outcome: ReviewOutcome;
  refused: boolean;
  operations: number;
  /** Why the rule refuses, in every mode, or else its warnings. Secrets that were reviewed or read are masked in it. */
  message?: string;
  /** The exception that lets the request through. The rule isn't evaluated then. */
  exception?: string;
  members?: GroupMemberDecision[];
}

/** What one member of a group decided. The inherited `operations` counts those of the member's own patch. */
export interface GroupMemberDecision extends Omit<RuleDecision, "outcome" | "members"> {
  rule: string;
  mode: EnforcementMode;
  error?: Failure | undefined;
}

/**
 * Evaluates a rule for one request. The build of a function sets the constants POSTERN_… to false if its rules don't
 * need the code (features.ts).
 */
export const evaluateRule: EvaluateRequest = (rule, phase, request, context) => {
  const { name, mode, capabilities } = context;
  const ruleFunction = rule[phase];
  if (!ruleFunction || mode === "off") return noDecision;
  if (POSTERN_EXCEPTIONS && context.exceptions) {
    const exception = findException(context.exceptions, request, context.now);
    if (exception) return { ...noDecision, outcome: { allowed: true, audit: { exception } }, exception };
  }
  // The cast is safe: `requireValidReview` checked that the object is present, and `match` gives it the rule's kind.
  const object = (request.operation === "DELETE" ? request.oldObject : request.object) as KubernetesObject;
  const { value, changes: listChanges } =
    POSTERN_MUTATES && phase === "mutate" ? createDraft(object) : { value: object, changes: () => [] };
  const secrets: unknown[] = [];
  const verdict = ruleFunction.call(rule, value, {
    ...(POSTERN_NEEDS && rule.needs && capabilities && bindNeeds(rule.needs, capabilities, name, secrets)),
    settings: context.settings,
    variant: context.variant,
    now: context.now,
    // The values of `since` for the cluster's version of Kubernetes.
    ...(POSTERN_SINCE && rule.since && { upstream: mergeSince(rule.since, context.kubernetes) }),
    request,
    oldObject: (request.oldObject ?? null) as KubernetesObject | null,
  });
  const concludeOrRepeat = (verdict: Verdict) => {
    const decision = concludeVerdict(verdict, listChanges, request, context);
    // If cached answers were used, `anew` returns capabilities that use none. With them, the rule is evaluated again
    // before it refuses.
    const uncached = decision.refused ? capabilities?.anew?.() : undefined;
    if (uncached) return evaluateRule(rule, phase, request, { ...context, capabilities: uncached });
    // The message may quote a Secret; formatError masks the values of Secrets.
    if (decision.message !== undefined && (secrets.length > 0 || request.resource?.resource === "secrets"))
      decision.message = formatError(new Failure(403, decision.message), { request, rule: name, secrets });
    return decision;
  };
  return verdict instanceof Promise ? verdict.then(concludeOrRepeat) : concludeOrRepeat(verdict);
};

const noDecision: RuleDecision = { outcome: { allowed: true }, refused: false, operations: 0 };

/** Returns the response to a rule's verdict. Only in the mode enforce does it refuse or patch. */
const concludeVerdict = (
  verdict: Verdict,
  listChanges: () => Patch,
  request: AdmissionRequest,
  { name, mode }: RuleEvaluationContext,
): RuleDecision => {
  const members = typeof verdict === "string" ? { refuse: verdict } : (verdict ?? {});
  const { refuse, warnings = [], audit = {}, ...others } = members;
  const status = typeof refuse === "string" ? { code: 403, reason: "Forbidden", message: refuse } : refuse;
  // A rule that returns { refused } or a Status itself means to refuse, so it must not admit.
  if (!isMap(members) || !isMap(status ?? {}) || Object.keys(others)[0]) {
    const found = isMap(members) ? `{ ${Object.keys(members)} }` : (members as object).constructor.name;
    throw new Failure(500, `the rule must return nothing, a sentence or { refuse, warnings, audit }, not ${found}`);
  }
  const patch = POSTERN_MUTATES && !status ? listChanges() : [];
  if (POSTERN_MUTATES && patch.length > 0 && request.operation === "DELETE")
    throw new Failure(500, `the rule edited ${patch[0]?.path} on DELETE`);

  const outcome: ReviewOutcome = { allowed: true, warnings, audit };
  const decision: RuleDecision = { outcome, refused: Boolean(status), operations: patch.length };
  if (mode === "enforce") {
    if (status) {
      outcome.allowed = false;
      outcome.status = status;
    }
    if (patch.length > 0) outcome.patch = patch;
  } else if (status || patch.length > 0) {
    const [verb, detail] = status ? ["deny", status.message] : ["change", patch.map(({ path }) => path).join(", ")];
    // A warning contains the rule's name. An audit annotation gets the webhook's name from the API server.
    if (mode === "warn") outcome.warnings = [`${name} would ${verb}: ${detail}`, ...warnings];
    else outcome.audit = { ...audit, [`would-${verb}`]: detail };
  }
  const message = status?.message ?? outcome.warnings?.join("; ");
  if (message) decision.message = message;
  return decision;
};
