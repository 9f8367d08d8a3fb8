import { Failure } from "postern/failure";
import { isMap } from "postern/json";
import type { Pod } from "postern/kubernetes/core/v1";
import { type HttpsResponse, parseAnswer } from "postern/needs";
import { listContainers } from "postern/objects/pod";
import type { AdmissionRequest } from "postern/review";

const apiVersion = "imagepolicy.k8s.io/v1alpha1";
const kind = "ImageReview";

/** Returns the ImageReview for a pod, or for its ephemeral containers, as JSON. */
export const formatImageReview = (pod: Pod, { namespace, subResource }: AdmissionRequest): string => {
  const containers = listContainers(pod, subResource ? ["ephemeralContainers"] : ["containers", "initContainers"]);
  const annotations = Object.entries(pod.metadata?.annotations ?? {})
    .filter(([key]) => key.includes(".image-policy.k8s.io/"))
    .sort(([left], [right]) => (left < right ? -1 : 1));
  const spec = {
    ...(containers.length > 0 && { containers: containers.map(({ container: { image } }) => ({ image })) }),
    ...(annotations.length > 0 && { annotations: Object.fromEntries(annotations) }),
    namespace,
  };
  return JSON.stringify({ kind, apiVersion, metadata: {}, spec, status: { allowed: false } });
};

/** The service's decision. With `fault`, the service gave no usable answer. */
export interface ImageReviewOutcome {
  allowed: boolean;
  reason?: string;
  audit?: Record<string, string>;
  fault?: string;
}

/** Returns what the backend's answer says about a pod's images; a failure if the answer is no ImageReview. */
export const parseImageReviewAnswer = (answer: HttpsResponse): ImageReviewOutcome => {
  const { status } = answer;
  // As in client-go, 200 to 206 are success.
  if (status < 200 || status > 206) return failOutcome(`the image policy webhook backend answers ${status}`);
  const review = parseAnswer(answer);
  const outcome =
    isMap(review) && (review.kind ?? kind) === kind && (review.apiVersion ?? apiVersion) === apiVersion
      ? parseStatus(review.status ?? {})
      : undefined;
  return outcome ?? failOutcome(`the image policy webhook backend answers with no ${kind} of ${apiVersion}`);
};

/** Parses the status of an ImageReview. Undefined if a field has a wrong type. As in Go, null is an absent field. */
const parseStatus = (status: unknown): ImageReviewOutcome | undefined => {
  if (!isMap(status)) return undefined;
  const allowed = status.allowed ?? false;
  const reason = status.reason ?? "";
  const annotations = status.auditAnnotations ?? {};
  if (typeof allowed !== "boolean" || typeof reason !== "string" || !isMap(annotations)) return undefined;
  const audit: Record<string, string> = {};
  for (const [key, value] of Object.entries(annotations)) {
    if (typeof (value ?? "") !== "string") return undefined;
    audit[key] = String(value ?? "");
  }
  return { allowed, reason, audit };
};

/** Turns a Failure of code 503 (the service can't be reached) into an outcome with a fault; throws any other error. */
export const toUnreachableServiceOutcome = (error: unknown): ImageReviewOutcome => {
  if (error instanceof Failure && error.code === 503) return failOutcome(error.message);
  throw error;
};

const failOutcome = (fault: string): ImageReviewOutcome => ({ allowed: false, fault });
