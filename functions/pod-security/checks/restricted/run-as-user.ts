// Since 1.23: containers must not choose the user root.
// Field: securityContext.runAsUser of the pod and of each container. Allowed: unset, any number but 0.
// Since 1.35, pods with spec.hostUsers=false are exempt.

import { buildSecurityContextsCheck, type PodSecurityCheck, skipPodsWithUserNamespace } from "../check-builders.ts";

const checkUser = buildSecurityContextsCheck(
  "runAsUser=0",
  (context) => context.runAsUser === 0,
  (setters) => `${setters} must not set runAsUser=0`,
);
export const runAsUser: PodSecurityCheck = {
  level: "restricted",
  since: { "1.23": checkUser, "1.35": skipPodsWithUserNamespace(checkUser) },
};
