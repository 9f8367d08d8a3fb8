import { createReviewFailure, type Failure, toFailure } from "../failure.ts";
import type { AdmissionRequest } from "../review.ts";
import type { Rule } from "../rule.ts";
import { loadReviewFaults } from "./review-faults-import.ts";

/**
 * Converts an evaluation's error to the failure that answers the review: a 400 if no API server sends such a request,
 * else the rule's error. A request's types are checked only then, because an API server sends only right types.
 */
export const explainFailure = async (
  thrown: unknown,
  request: AdmissionRequest | undefined,
  match?: Rule["match"],
): Promise<Failure> => {
  const failure = toFailure(thrown);
  if (failure.code < 500 || request === undefined) return failure;
  const { findReviewFault } = await loadReviewFaults();
  const fault = findReviewFault(request, match);
  return fault === undefined ? failure : createReviewFailure(fault, { cause: thrown });
};
