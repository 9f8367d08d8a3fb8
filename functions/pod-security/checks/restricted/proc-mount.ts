// Since 1.35: the same as the check at the level baseline, but pods with spec.hostUsers=false aren't exempt.
// Field: securityContext.procMount of each container. Allowed: unset, Default.

import { checkProcMount, procMount } from "../baseline/proc-mount.ts";
import type { PodSecurityCheck } from "../check-builders.ts";

export const procMountRestricted: PodSecurityCheck = {
  level: "restricted",
  since: { "1.35": checkProcMount },
  insteadOf: procMount,
};
