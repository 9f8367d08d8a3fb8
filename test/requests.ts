import type { AdmissionRequest } from "#lib/review.ts";

/** Returns a request in which user jane creates pod a, with these changes. */
export const buildPodRequest = (changes: Partial<AdmissionRequest> = {}): AdmissionRequest => ({
  uid: "1",
  kind: { group: "", version: "v1", kind: "Pod" },
  resource: { group: "", version: "v1", resource: "pods" },
  operation: "CREATE",
  userInfo: { username: "jane" },
  object: { metadata: { name: "a" } },
  ...changes,
});

/** Returns the review of such a request. */
export const buildPodReview = (changes?: Partial<AdmissionRequest>) => ({
  kind: "AdmissionReview",
  apiVersion: "admission.k8s.io/v1",
  request: buildPodRequest(changes),
});
