import { type Since, selectSince } from "postern/since";
import { appArmorProfile } from "./checks/baseline/app-armor.ts";
import { capabilitiesBaseline } from "./checks/baseline/capabilities.ts";
import { hostNamespaces } from "./checks/baseline/host-namespaces.ts";
import { hostPathVolumes } from "./checks/baseline/host-path-volumes.ts";
import { hostPorts } from "./checks/baseline/host-ports.ts";
import { hostProbesAndHostLifecycle } from "./checks/baseline/host-probes.ts";
import { privileged } from "./checks/baseline/privileged.ts";
import { procMount } from "./checks/baseline/proc-mount.ts";
import { seLinuxOptions } from "./checks/baseline/se-linux.ts";
import { seccompProfileBaseline } from "./checks/baseline/seccomp.ts";
import { sysctls } from "./checks/baseline/sysctls.ts";
import { windowsHostProcess } from "./checks/baseline/windows-host-process.ts";
import type {
  PodSecurityCheck,
  PodSecurityCheckFunction,
  PodSecurityViolation,
  PodSubject,
} from "./checks/check-builders.ts";
import { capabilitiesRestricted } from "./checks/restricted/capabilities.ts";
import { allowPrivilegeEscalation } from "./checks/restricted/privilege-escalation.ts";
import { procMountRestricted } from "./checks/restricted/proc-mount.ts";
import { runAsNonRoot } from "./checks/restricted/run-as-non-root.ts";
import { runAsUser } from "./checks/restricted/run-as-user.ts";
import { seccompProfileRestricted } from "./checks/restricted/seccomp.ts";
import { restrictedVolumes } from "./checks/restricted/volume-types.ts";
import type { PodSecurityLevelAndVersion } from "./policy.ts";

/** All checks, in the order in which upstream reports offences. */
const checks: readonly PodSecurityCheck[] = [
  appArmorProfile,
  capabilitiesBaseline,
  hostNamespaces,
  hostPathVolumes,
  hostPorts,
  hostProbesAndHostLifecycle,
  privileged,
  procMount,
  seLinuxOptions,
  seccompProfileBaseline,
  sysctls,
  windowsHostProcess,
  allowPrivilegeEscalation,
  capabilitiesRestricted,
  procMountRestricted,
  restrictedVolumes,
  runAsNonRoot,
  runAsUser,
  seccompProfileRestricted,
];

/** The rule's `since`: for each Kubernetes version that changed a check, the newest version of the standards it has. */
export const newestStandards: Since<{ newestVersion: string }> & { readonly "1.0": { newestVersion: string } } = {
  "1.0": { newestVersion: "1.0" }, // for all versions before the first change
  ...Object.fromEntries(
    [...new Set(checks.flatMap(({ since }) => Object.keys(since)))]
      .sort((left, right) => left.localeCompare(right, "en", { numeric: true }))
      .map((version) => [version, { newestVersion: version }]), // the standards have Kubernetes' versions
  ),
};

/**
 * Lists the violations of a level of the Pod Security Standards by a pod. The checks are those of the requested version
 * or, if it is newer than `newestVersion`, those of `newestVersion`.
 */
export const listOffences = (
  subject: PodSubject,
  { level, version }: PodSecurityLevelAndVersion,
  newestVersion?: string,
): PodSecurityViolation[] => {
  const requestedVersion = version === "latest" ? undefined : version.slice(1);
  // `selectSince` drops the versions after its second argument (undefined: none). The last of the rest is the newest.
  const [asOf = ""] = Object.keys(selectSince(selectSince(newestStandards, newestVersion), requestedVersion)).slice(-1);
  return getChecks(level, asOf).flatMap((check) => check(subject) ?? []);
};

/** Returns the checks of a level in a version of the standards, such as 1.25. */
const getChecks = (level: PodSecurityLevelAndVersion["level"], asOf: string): PodSecurityCheckFunction[] => {
  const key = `${level} ${asOf}`;
  const checks = checksByLevelAndVersion.get(key) ?? selectChecks(level, asOf);
  checksByLevelAndVersion.set(key, checks);
  return checks;
};
const checksByLevelAndVersion = new Map<string, PodSecurityCheckFunction[]>();

/** Returns the checks of a level, such as baseline, as they were in the Kubernetes version `asOf`. */
const selectChecks = (level: PodSecurityLevelAndVersion["level"], asOf: string): PodSecurityCheckFunction[] => {
  if (level === "privileged") return [];
  const applicable = checks.flatMap((check) => {
    // The last function is that of the newest version up to `asOf`.
    const run = Object.values(selectSince(check.since, asOf)).at(-1);
    return run && (check.level === "baseline" || level === "restricted") ? [{ check, run }] : [];
  });
  const replaced = applicable.map(({ check }) => check.insteadOf);
  return applicable.filter(({ check }) => !replaced.includes(check)).map(({ run }) => run);
};
