// Since 1.8: a process must not get more privileges than the process that started it.
// Field: securityContext.allowPrivilegeEscalation of each container. Allowed: false.
// Since 1.25, pods with spec.os.name=windows are exempt.

import { buildContainersCheck, formatQuotedNames, type PodSecurityCheck, skipWindowsPods } from "../check-builders.ts";

const checkEscalation = buildContainersCheck(
  "allowPrivilegeEscalation != false",
  // An absent field counts as true.
  (_, { allowPrivilegeEscalation }) => (allowPrivilegeEscalation === false ? [] : ["true"]),
  (names) => `${formatQuotedNames("container", names)} must set securityContext.allowPrivilegeEscalation=false`,
);
export const allowPrivilegeEscalation: PodSecurityCheck = {
  level: "restricted",
  since: { "1.8": checkEscalation, "1.25": skipWindowsPods(checkEscalation) },
};
