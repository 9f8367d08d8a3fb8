/**
 * The error for a fault of Postern, or for a request that is no review. endpoint.ts catches it and answers with a
 * status other than 2xx, so that the failurePolicy decides. A refusal is a value (see refusals.ts), never a Failure.
 */
export class Failure extends Error {
  readonly code: number;
  constructor(code: number, sentence: string, options?: ErrorOptions) {
    super(sentence, options);
    this.code = code;
  }
}

/** The `reason` of a Kubernetes Status, by its code. */
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

/** Returns a Status. For most HTTP codes, the API server shows its client a webhook's body only if it is a Status. */
export const toFailureStatus = (code: number, message: string) => {
  return { kind: "Status", apiVersion: "v1", metadata: {}, status: "Failure", message, reason: reasons[code], code };
};

/** Returns a thrown Failure unchanged, and wraps any other thrown value in a Failure 500 with that value as cause. */
export const toFailure = (thrown: unknown): Failure => {
  if (thrown instanceof Failure) return thrown;
  return new Failure(500, `the rule failed: ${describeThrown(thrown)}`, { cause: thrown });
};

/** Returns the Failure for a request that is no AdmissionReview of an API server. */
export const createReviewFailure = (fault: string, options?: ErrorOptions): Failure =>
  new Failure(400, `this is no AdmissionReview: ${fault}`, options);

/** Returns the Failure for a request whose body is not UTF-8. */
export const createNotTextFailure = () =>
  new Failure(400, "the body is not UTF-8; an AdmissionReview as JSON is expected");

export const getErrorMessage = (thrown: unknown): string => (thrown instanceof Error ? thrown.message : String(thrown));

const describeThrown = (thrown: unknown): string => {
  // A TypeError's message describes Postern's code, which can't help the sender of an object. The log has the message.
  if (thrown instanceof TypeError) return "a value may have the wrong type";
  if (thrown instanceof Error) return `${thrown.name}: ${thrown.message}`;
  return typeof thrown === "string" ? thrown : `it threw ${typeof thrown}`;
};
