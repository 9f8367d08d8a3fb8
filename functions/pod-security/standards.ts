import type {
  PodSecurityCheck,
  PodSecurityCheckFunction,
  PodSecurityViolation,
  PodSubject,
} from "./checks/check-builders.ts";
import * as containers from "./checks/containers.ts";
import * as contexts from "./checks/contexts.ts";
import * as pods from "./checks/pod.ts";
import type { PodSecurityLevelAndVersion } from "./policy.ts";

/** All checks, in the order in which upstream reports offences. */
const checks: readonly PodSecurityCheck[] = [
  contexts.appArmorProfile,
  containers.capabilitiesBaseline,
  pods.hostNamespaces,
  pods.hostPathVolumes,
  containers.hostPorts,
  containers.hostProbesAndHostLifecycle,
  containers.privileged,
  containers.procMount,
  contexts.seLinuxOptions,
  contexts.seccompProfileBaseline,
  pods.sysctls,
  contexts.windowsHostProcess,
  containers.allowPrivilegeEscalation,
  containers.capabilitiesRestricted,
  containers.procMountRestricted,
  pods.restrictedVolumes,
  contexts.runAsNonRoot,
  contexts.runAsUser,
  contexts.seccompProfileRestricted,
];

/**
 * The minor version of Kubernetes in which a Pod Security check last changed; later versions have the same checks.
 */
const newest = Math.max(...checks.flatMap(({ since }) => Object.keys(since).map(getMinor)));

/** Returns how a pod violates a level of the Pod Security Standards, as of a version. */
export const listOffences = (
  subject: PodSubject,
  { level, version }: PodSecurityLevelAndVersion,
): PodSecurityViolation[] =>
  getChecks(level, version === "latest" ? newest : Math.min(getMinor(version.slice(1)), newest)).flatMap(
    (check) => check(subject) ?? [],
  );

const getChecks = (level: PodSecurityLevelAndVersion["level"], minor: number): PodSecurityCheckFunction[] => {
  const key = `${level} ${minor}`;
  const checks = known.get(key) ?? selectChecks(level, minor);
  known.set(key, checks);
  return checks;
};
const known = new Map<string, PodSecurityCheckFunction[]>();

const selectChecks = (level: PodSecurityLevelAndVersion["level"], minor: number): PodSecurityCheckFunction[] => {
  if (level === "privileged") return [];
  const applicable = checks.flatMap((check) => {
    const found = Object.entries(check.since).findLast(([version]) => getMinor(version) <= minor);
    return found && (check.level === "baseline" || level === "restricted") ? [{ check, run: found[1] }] : [];
  });
  const replaced = applicable.map(({ check }) => check.insteadOf);
  return applicable.filter(({ check }) => !replaced.includes(check)).map(({ run }) => run);
};

function getMinor(version: string) {
  return Number(version.slice(2));
}
