import { celEvaluator } from "#infra/apiserver/admission/conditions.ts";
import type { AdmissionRequest } from "#lib/review.ts";

/** Evaluates a match condition as the API server does. Throws if the expression fails. */
export const evaluateMatchCondition = (
  expression: string,
  { object, oldObject, ...request }: AdmissionRequest,
): boolean => {
  // In the API server's CEL, a field with an empty value is missing.
  const filledFields = Object.entries(request).filter(([, value]) => value !== "" && value !== undefined);
  const filledRequest = Object.fromEntries(filledFields);
  const variables = { object: object ?? null, oldObject: oldObject ?? null, readRequest: () => filledRequest };
  const evaluated = celEvaluator.compile(expression)(variables, celEvaluator.createBudget());
  if ("holds" in evaluated) return evaluated.holds;
  throw new Error(`${expression}: ${JSON.stringify(evaluated)}`);
};
