/**
 * A fault of Postern, or a request that is no review. It is thrown, caught in endpoint.ts and answered non-2xx, so that
 * the cluster's failurePolicy decides. A refusal is never a failure but a value (see refusals.ts).
 */
export class Failure extends Error {
  readonly code: number;
  constructor(code: number, sentence: string, options?: ErrorOptions) {
    super(sentence, options);
    this.code = code;
  }
}

const reasons: Record<number, string> = {
  400: "BadRequest",
  404: "NotFound",
  405: "MethodNotAllowed",
  413: "RequestEntityTooLarge",
  415: "UnsupportedMediaType",
  500: "InternalError",
  503: "ServiceUnavailable",
  504: "Timeout",
};

/** Returns a Status, the only body that the API server shows to its client at most codes. */
export const toFailureStatus = (code: number, message: string) => {
  return { kind: "Status", apiVersion: "v1", metadata: {}, status: "Failure", message, reason: reasons[code], code };
};

/** Returns a Failure as it is, and wraps anything else in a 500 that keeps its cause. */
export const toFailure = (thrown: unknown): Failure => {
  if (thrown instanceof Failure) return thrown;
  return new Failure(500, `the rule failed: ${describeThrown(thrown)}`, { cause: thrown });
};

/** Returns the failure of a request that is no AdmissionReview of an API server. */
export const createReviewFailure = (fault: string, options?: ErrorOptions): Failure =>
  new Failure(400, `this is no AdmissionReview: ${fault}`, options);

/** Returns the failure of a request whose body is not UTF-8. */
export const createNotTextFailure = () =>
  new Failure(400, "the body is not UTF-8; an AdmissionReview as JSON is expected");

export const getErrorMessage = (thrown: unknown): string => (thrown instanceof Error ? thrown.message : String(thrown));

const describeThrown = (thrown: unknown): string => {
  // The message of a TypeError describes code, which doesn't help the sender of an object; the log has it.
  if (thrown instanceof TypeError) return "a value may have the wrong type";
  if (thrown instanceof Error) return `${thrown.name}: ${thrown.message}`;
  return typeof thrown === "string" ? thrown : `it threw ${typeof thrown}`;
};
