import type { EvaluationContext } from "#lib/decide.ts";
import { evaluateRule } from "#lib/evaluation.ts";
import { applyPatch } from "#lib/patch.ts";
import type { AdmissionRequest } from "#lib/review.ts";
import type { Phase, Rule } from "#lib/rule.ts";
import type { Path } from "../manifests/manifests.ts";
import { describeEdits, onOneLine } from "./edit-descriptions.ts";

/** A suggestion for a refusal: the rule's own sentence, or edits with the object that they make. */
export interface Suggestion {
  text: string;
  object?: unknown;
  /** Whether the rule would refuse that object, too. */
  isVain?: boolean;
}

/**
 * Returns a rule's suggestion for a request that it refused in this phase; undefined if it has none. Edits are
 * evaluated by the rule again. `at` is the object's path in its manifest.
 */
export const suggestFix = async (
  rule: Rule,
  phase: Phase,
  request: AdmissionRequest,
  around: Omit<EvaluationContext, "mode">,
  at: Path = [],
): Promise<Suggestion | undefined> => {
  if (rule.suggest === undefined) return undefined;
  const circumstances: EvaluationContext = { ...around, mode: "enforce" };
  // `suggest` edits a draft as `mutate` does; a sentence that it returns comes out as a refusal.
  const suggesting = rule.suggest.bind(rule);
  const { outcome } = await evaluateRule({ ...rule, mutate: suggesting }, "mutate", request, circumstances);
  if (outcome.status) return { text: onOneLine(outcome.status.message) };
  if (outcome.patch === undefined) return undefined;
  const object = applyPatch(request.object, outcome.patch);
  const tried = await evaluateRule(rule, phase, { ...request, object }, circumstances);
  return { text: describeEdits(request.object, object, at), object, isVain: tried.refused };
};
