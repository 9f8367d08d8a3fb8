// A container must not be privileged: it would have all rights of root on its node.
// Field: securityContext.privileged of each container. Allowed: unset, false.

import { buildContainersCheck, formatQuotedNames, type PodSecurityCheck } from "../check-builders.ts";

const checkPrivileged = buildContainersCheck(
  "privileged",
  (_, { privileged }) => (privileged === true ? ["true"] : []),
  (names) => `${formatQuotedNames("container", names)} must not set securityContext.privileged=true`,
);
export const privileged: PodSecurityCheck = { level: "baseline", since: { "1.0": checkPrivileged } };
