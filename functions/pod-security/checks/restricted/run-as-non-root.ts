// Containers must not run as root.
// Field: securityContext.runAsNonRoot of the pod and of each container. Allowed: true. The field may be unset in
// containers if it is true in the pod, and unset in the pod if it is true in each container.
// Since 1.35, pods with spec.hostUsers=false are exempt.

import {
  buildSecurityContextsCheck,
  formatQuotedNames,
  getContext,
  listNames,
  type PodSecurityCheck,
  type PodSecurityCheckFunction,
  skipPodsWithUserNamespace,
} from "../check-builders.ts";

const checkRunAsRoot = buildSecurityContextsCheck(
  "runAsNonRoot != true",
  ({ runAsNonRoot }) => runAsNonRoot === false,
  (setters) => `${setters} must not set securityContext.runAsNonRoot=false`,
);
/** Returns which containers don't set runAsNonRoot, if the pod doesn't set it either. */
const requireNonRoot: PodSecurityCheckFunction = (subject) => {
  const violation = checkRunAsRoot(subject);
  if (violation || subject.spec.securityContext?.runAsNonRoot === true) return violation;
  const without = listNames(subject.containers.filter((container) => getContext(container).runAsNonRoot === undefined));
  if (without.length > 0)
    return {
      reason: "runAsNonRoot != true",
      detail: `pod or ${formatQuotedNames("container", without)} must set securityContext.runAsNonRoot=true`,
    };
};
export const runAsNonRoot: PodSecurityCheck = {
  level: "restricted",
  since: { "1.0": requireNonRoot, "1.35": skipPodsWithUserNamespace(requireNonRoot) },
};
