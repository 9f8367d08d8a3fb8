import { allowPrivilegeEscalation } from "./checks/allow-privilege-escalation.ts";
import { appArmorProfile } from "./checks/app-armor-profile.ts";
import { capabilitiesBaseline } from "./checks/capabilities-baseline.ts";
import { capabilitiesRestricted } from "./checks/capabilities-restricted.ts";
import type { Check, Judge, Offence, Subject } from "./checks/check.ts";
import { hostNamespaces } from "./checks/host-namespaces.ts";
import { hostPathVolumes } from "./checks/host-path-volumes.ts";
import { hostPorts } from "./checks/host-ports.ts";
import { hostProbesAndHostLifecycle } from "./checks/host-probes-and-host-lifecycle.ts";
import { privileged } from "./checks/privileged.ts";
import { procMount, procMountRestricted } from "./checks/proc-mount.ts";
import { restrictedVolumes } from "./checks/restricted-volumes.ts";
import { runAsNonRoot } from "./checks/run-as-non-root.ts";
import { runAsUser } from "./checks/run-as-user.ts";
import { seLinuxOptions } from "./checks/se-linux-options.ts";
import { seccompProfileBaseline, seccompProfileRestricted } from "./checks/seccomp-profile.ts";
import { sysctls } from "./checks/sysctls.ts";
import { windowsHostProcess } from "./checks/windows-host-process.ts";
import type { Demand } from "./policy.ts";

/** In the order in which upstream tells what they find. */
const checks: readonly Check[] = [
  ...[appArmorProfile, capabilitiesBaseline, hostNamespaces, hostPathVolumes, hostPorts, hostProbesAndHostLifecycle],
  ...[privileged, procMount, seLinuxOptions, seccompProfileBaseline, sysctls, windowsHostProcess],
  ...[allowPrivilegeEscalation, capabilitiesRestricted, procMountRestricted, restrictedVolumes, runAsNonRoot],
  ...[runAsUser, seccompProfileRestricted],
];

/** The minor version in which a check last changed; from there on all are the same. */
const newest = Math.max(...checks.flatMap(({ since }) => Object.keys(since).map(minorOf)));

/** All that a level has against a pod at a version, in upstream's order. */
export const offencesOf = (subject: Subject, { level, version }: Demand): Offence[] =>
  judgesOf(level, version === "latest" ? newest : Math.min(minorOf(version.slice(1)), newest)).flatMap(
    (judge) => judge(subject) ?? [],
  );

const judgesOf = (level: Demand["level"], minor: number): Judge[] => {
  const key = `${level} ${minor}`;
  const judges = known.get(key) ?? select(level, minor);
  known.set(key, judges);
  return judges;
};
const known = new Map<string, Judge[]>();

const select = (level: Demand["level"], minor: number): Judge[] => {
  if (level === "privileged") return [];
  const there = checks.flatMap((check) => {
    const found = Object.entries(check.since).findLast(([version]) => minorOf(version) <= minor);
    return found && (check.level === "baseline" || level === "restricted") ? [{ check, judge: found[1] }] : [];
  });
  const replaced = there.map(({ check }) => check.insteadOf);
  return there.filter(({ check }) => !replaced.includes(check)).map(({ judge }) => judge);
};

/** Of a version such as `1.27`. */
function minorOf(version: string) {
  return Number(version.slice(2));
}
