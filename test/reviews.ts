import type { AdmissionRequest } from "#lib/review.ts";

/** Returns a review of a new Pod, with other fields of its request. */
export const buildTestReview = (fields: Partial<AdmissionRequest> = {}) => {
  const request: AdmissionRequest = {
    uid: "1",
    kind: { group: "", version: "v1", kind: "Pod" },
    resource: { group: "", version: "v1", resource: "pods" },
    operation: "CREATE",
    userInfo: { username: "jane" },
    object: {},
    ...fields,
  };
  return { kind: "AdmissionReview", apiVersion: "admission.k8s.io/v1", request };
};
