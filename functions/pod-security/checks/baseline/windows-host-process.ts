// The processes of a Windows container must not run as processes of its node.
// Field: securityContext.windowsOptions.hostProcess of the pod and of each container. Allowed: unset, false.

import { buildSecurityContextsCheck, type PodSecurityCheck } from "../check-builders.ts";

const checkHostProcess = buildSecurityContextsCheck(
  "hostProcess",
  ({ windowsOptions }) => windowsOptions?.hostProcess === true,
  (setters) => `${setters} must not set securityContext.windowsOptions.hostProcess=true`,
);
export const windowsHostProcess: PodSecurityCheck = { level: "baseline", since: { "1.0": checkHostProcess } };
