import { type Circumstances, decide } from "#lib/decide.ts";
import { applied } from "#lib/patch.ts";
import type { Request } from "#lib/review.ts";
import type { Phase, Rule } from "#lib/rule.ts";
import type { Path } from "../manifests/manifests.ts";
import { describeEdits, onOneLine } from "./edit-descriptions.ts";

/** What somebody could do about a refusal: what a rule says in words, or edits, with the object that they make. */
export interface Suggestion {
  text: string;
  object?: unknown;
  /** That the rule would refuse that object, too. */
  isVain?: boolean;
}

/**
 * What a rule suggests where it refused a request in this phase; undefined where it has no idea. An edit is tried on the rule.
 * `at` is where the object stands in what its author writes.
 */
export const suggestFix = async (
  rule: Rule,
  phase: Phase,
  request: Request,
  around: Omit<Circumstances, "mode">,
  at: Path = [],
): Promise<Suggestion | undefined> => {
  if (rule.suggest === undefined) return undefined;
  const circumstances: Circumstances = { ...around, mode: "enforce" };
  // It does with a draft what `mutate` does; a sentence of its own ends up where a refusal would.
  const suggesting = rule.suggest.bind(rule);
  const { outcome } = await decide({ ...rule, mutate: suggesting }, "mutate", request, circumstances);
  if (outcome.status) return { text: onOneLine(outcome.status.message) };
  if (outcome.patch === undefined) return undefined;
  const object = applied(request.object, outcome.patch);
  const tried = await decide(rule, phase, { ...request, object }, circumstances);
  return { text: describeEdits(request.object, object, at), object, isVain: tried.refused };
};
