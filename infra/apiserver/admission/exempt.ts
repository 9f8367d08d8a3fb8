import type { GroupVersionResource } from "#lib/review.ts";
import { mergeSince, type Since } from "#lib/since.ts";

/** The resources of reviews, by group, for which API servers from 1.37 on call no webhook. */
export const excludedReviews = {
  "authentication.k8s.io": ["selfsubjectreviews", "tokenreviews"],
  "authorization.k8s.io": [
    "localsubjectaccessreviews",
    "selfsubjectaccessreviews",
    "selfsubjectrulesreviews",
    "subjectaccessreviews",
  ],
};

/** The resources by group for which API servers call no webhook, by the minor of Kubernetes that added them. */
const exempt: Since<Readonly<Record<string, readonly string[]>>> = {
  "1.0": {
    "admissionregistration.k8s.io": [
      "mutatingwebhookconfigurations",
      "validatingwebhookconfigurations",
      "mutatingadmissionpolicies",
      "validatingadmissionpolicies",
      "mutatingadmissionpolicybindings",
      "validatingadmissionpolicybindings",
    ],
  },
  "1.37": excludedReviews,
};

/** Reports whether an API server calls no webhook at all for a resource. */
export const isExempt = (
  { group, resource }: Pick<GroupVersionResource, "group" | "resource">,
  kubernetes?: string,
): boolean => mergeSince(exempt, kubernetes)[group]?.includes(resource) ?? false;
