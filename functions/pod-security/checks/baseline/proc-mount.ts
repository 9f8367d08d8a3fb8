// A container must not see the parts of /proc that container runtimes hide.
// Field: securityContext.procMount of each container. Allowed: unset, Default.
// Since 1.35, pods with spec.hostUsers=false are exempt.

import {
  buildContainersCheck,
  formatQuotedNames,
  type PodSecurityCheck,
  quoteAll,
  skipPodsWithUserNamespace,
} from "../check-builders.ts";

export const checkProcMount = buildContainersCheck(
  "procMount",
  (_, { procMount = "Default" }) => (procMount === "Default" ? [] : [procMount]),
  (names, mounts) =>
    `${formatQuotedNames("container", names)} must not set securityContext.procMount to ${quoteAll(mounts)}`,
);
export const procMount: PodSecurityCheck = {
  level: "baseline",
  since: { "1.0": checkProcMount, "1.35": skipPodsWithUserNamespace(checkProcMount) },
};
