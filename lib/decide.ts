import { Failure } from "./failure.ts";
import { bindNeeds, type Capabilities, reevaluateRefusal } from "./needs.ts";
import { createDraft } from "./patch.ts";
import type { AdmissionRequest, KubernetesObject, Patch, ReviewOutcome, Status } from "./review.ts";
import type { Phase, Rule, Verdict } from "./rule.ts";

export type Mode = "enforce" | "warn" | "audit" | "off";

export interface EvaluationContext {
  /** Shown in warnings, and part of the rule's keys in the ledger. */
  name: string;
  mode: Mode;
  settings: object;
  variant?: string | undefined;
  now: Date;
  world?: Capabilities | undefined;
}

/** An outcome. `refused` and `operations` are the rule's own result, whatever the mode. */
export interface Decision {
  outcome: ReviewOutcome;
  refused: boolean;
  operations: number;
  members?: MemberResult[];
}

export interface MemberResult {
  rule: string;
  mode: Mode;
  refused: boolean;
  operations: number;
  error?: Failure | undefined;
}

/** Evaluates a rule for one request. Returns a promise only for rules that wait for answers. */
export const evaluateRule = (
  rule: Rule,
  phase: Phase,
  request: AdmissionRequest,
  circumstances: EvaluationContext,
): Decision | Promise<Decision> => {
  const judge = rule[phase];
  if (judge === undefined || circumstances.mode === "off") return nothing;

  // `decode` checked that the object is present; that it has the rule's kind follows from `match`.
  const object = (request.operation === "DELETE" ? request.oldObject : request.object) as KubernetesObject;
  const { value, changes } = phase === "mutate" ? createDraft(object) : { value: object, changes: () => [] };
  const said = judge.call(rule, value, {
    ...bindNeeds(rule, circumstances),
    request,
    oldObject: (request.oldObject ?? null) as KubernetesObject | null,
    settings: circumstances.settings,
    variant: circumstances.variant,
    now: circumstances.now,
  });
  const conclude = (verdict: Verdict) =>
    reevaluateRefusal(verdict, circumstances, (world) =>
      evaluateRule(rule, phase, request, { ...circumstances, world }),
    ) ?? conclusion(verdict, changes, request, circumstances);
  return said instanceof Promise ? said.then(conclude) : conclude(said);
};

const nothing: Decision = { outcome: { allowed: true }, refused: false, operations: 0 };

const conclusion = (
  verdict: Verdict,
  changes: () => Patch,
  request: AdmissionRequest,
  { name, mode }: EvaluationContext,
): Decision => {
  const { refuse, warnings = [], audit = {} } = typeof verdict === "string" ? { refuse: verdict } : (verdict ?? {});
  const status = typeof refuse === "string" ? sentence(refuse) : refuse;
  const patch = status === undefined ? changes() : [];
  if (patch.length > 0 && request.operation === "DELETE")
    throw new Failure(500, `the rule edited ${patch[0]?.path} on DELETE`);

  const decision = { refused: status !== undefined, operations: patch.length };
  if (mode === "enforce") {
    const allowed = status === undefined;
    return {
      ...decision,
      outcome: { allowed, warnings, audit, ...(status && { status }), ...(patch.length > 0 && { patch }) },
    };
  }
  // A warning is shown beside those of other rules and needs the rule's name; an audit annotation has it already.
  if (!status && patch.length === 0) return { ...decision, outcome: { allowed: true, warnings, audit } };
  const [would, what] = status ? ["deny", status.message] : ["change", patch.map(({ path }) => path).join(", ")];
  return {
    ...decision,
    outcome:
      mode === "warn"
        ? { allowed: true, warnings: [`${name} would ${would}: ${what}`, ...warnings], audit }
        : { allowed: true, warnings, audit: { ...audit, [`would-${would}`]: what } },
  };
};

const sentence = (message: string): Status => ({ code: 403, reason: "Forbidden", message });
