import { type EvaluateRequest, evaluateRule } from "#lib/core/evaluation.ts";
import { isSame } from "#lib/json.ts";
import type { KubernetesObject } from "#lib/review.ts";

/**
 * Returns a function that evaluates LimitRanger's rule. API servers apply the LimitRanges of a namespace in a random
 * order, and the first one sets the defaults. So each one is tried as the first; `tell` is called if patches differ.
 */
export const createLimitsEvaluation =
  (tell: (sentence: string) => void): EvaluateRequest =>
  async (rule, phase, request, context) => {
    const { capabilities } = context;
    if (capabilities === undefined || phase !== "mutate") return evaluateRule(rule, phase, request, context);
    let listed: KubernetesObject[] = [];
    const evaluateWithFirst = (first: number) =>
      evaluateRule(rule, phase, request, {
        ...context,
        capabilities: {
          ...capabilities,
          list: async (...question) => {
            listed = await capabilities.list(...question);
            return [...listed.slice(first), ...listed.slice(0, first)];
          },
        },
      });
    const decision = await evaluateWithFirst(0);
    const names = listed.map(({ metadata }) => metadata?.name);
    for (let first = 1; first < names.length; first++)
      if (!isSame((await evaluateWithFirst(first)).outcome.patch, decision.outcome.patch)) {
        tell(`which of the LimitRanges ${names.join(" and ")} sets its defaults, which is random`);
        break;
      }
    return decision;
  };
