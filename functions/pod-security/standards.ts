import { type Since, selectSince } from "postern/since";
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

/** For the rule's `since`: the newest version of the standards that each minor version of Kubernetes knows. */
export const newestStandards: Since<{ newest: string }> & { readonly "1.0": { newest: string } } = {
  "1.0": { newest: "1.0" },
  ...Object.fromEntries(
    [...new Set(checks.flatMap(({ since }) => Object.keys(since)))]
      .sort((one, other) => one.localeCompare(other, "en", { numeric: true }))
      .map((version) => [version, { newest: version }]),
  ),
};

/**
 * Returns how a pod violates a level of the Pod Security Standards, as of a version: the one that is asked for, but at
 * most `newest`.
 */
export const listOffences = (
  subject: PodSubject,
  { level, version }: PodSecurityLevelAndVersion,
  newest?: string,
): PodSecurityViolation[] => {
  const asked = version === "latest" ? undefined : version.slice(1);
  const [asOf = ""] = Object.keys(selectSince(selectSince(newestStandards, newest), asked)).slice(-1);
  return getChecks(level, asOf).flatMap((check) => check(subject) ?? []);
};

const getChecks = (level: PodSecurityLevelAndVersion["level"], asOf: string): PodSecurityCheckFunction[] => {
  const key = `${level} ${asOf}`;
  const checks = known.get(key) ?? selectChecks(level, asOf);
  known.set(key, checks);
  return checks;
};
const known = new Map<string, PodSecurityCheckFunction[]>();

const selectChecks = (level: PodSecurityLevelAndVersion["level"], asOf: string): PodSecurityCheckFunction[] => {
  if (level === "privileged") return [];
  const applicable = checks.flatMap((check) => {
    const run = Object.values(selectSince(check.since, asOf)).at(-1);
    return run && (check.level === "baseline" || level === "restricted") ? [{ check, run }] : [];
  });
  const replaced = applicable.map(({ check }) => check.insteadOf);
  return applicable.filter(({ check }) => !replaced.includes(check)).map(({ run }) => run);
};
