// Since 1.19: containers must have a seccomp profile.
// Field: securityContext.seccompProfile.type of the pod and of each container. Allowed: RuntimeDefault, Localhost. The
// field may be unset in containers if it is set in the pod, and unset in the pod if it is set in each container.
// Since 1.25, pods with spec.os.name=windows are exempt.

import { checkSeccomp, seccompProfileBaseline } from "../baseline/seccomp.ts";
import {
  formatQuotedNames,
  getContext,
  listNames,
  type PodSecurityCheck,
  type PodSecurityCheckFunction,
  skipWindowsPods,
} from "../check-builders.ts";

/** Returns which containers have no seccomp profile or a forbidden one. */
const requireSeccomp: PodSecurityCheckFunction = (subject) => {
  const forbidden = checkSeccomp(subject);
  if (forbidden || subject.spec.securityContext?.seccompProfile) return forbidden;
  const without = listNames(subject.containers.filter((container) => !getContext(container).seccompProfile));
  if (without.length > 0)
    return {
      reason: "seccompProfile",
      detail: `pod or ${formatQuotedNames("container", without)} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"`,
    };
};
export const seccompProfileRestricted: PodSecurityCheck = {
  level: "restricted",
  since: { "1.19": requireSeccomp, "1.25": skipWindowsPods(requireSeccomp) },
  insteadOf: seccompProfileBaseline,
};
