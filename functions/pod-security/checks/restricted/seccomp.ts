// Containers must have a seccomp profile. Since 1.19.
// Field: securityContext.seccompProfile.type of the pod and of each container. Allowed: RuntimeDefault, Localhost;
// unset in containers if the pod's is set; unset in the pod if each container's is set.
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
