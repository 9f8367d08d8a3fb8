// As at level baseline, but without its exemption of pods with spec.hostUsers=false. Since 1.35.
// Field: securityContext.procMount of each container. Allowed: unset, Default.

import { checkProcMount, procMount } from "../baseline/proc-mount.ts";
import type { PodSecurityCheck } from "../check-builders.ts";

export const procMountRestricted: PodSecurityCheck = {
  level: "restricted",
  since: { "1.35": checkProcMount },
  insteadOf: procMount,
};
