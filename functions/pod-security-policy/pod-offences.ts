import type { Pod, Sysctl } from "kubernetes-types/core/v1.d.ts";
import { goQuoted } from "postern/objects/go-quoted";
import { listContainers } from "postern/objects/pod";
import { capabilityOffences } from "./capabilities.ts";
import { type AnyContainer, groupOffences, runsAs, seLinuxOffences, userOffences } from "./identity.ts";
import { forbiddenAt, invalid, type Offences } from "./offence.ts";
import { isWithin, type Policy } from "./policy.ts";
import { appArmorOffences, seccompOffences, seccompOffencesOfPod } from "./profiles.ts";
import { volumeOffences } from "./volumes.ts";

const hosts = { hostNetwork: "network", hostPID: "PID", hostIPC: "IPC" } as const;

/** In upstream's order. */
export function* offences(policy: Policy, pod: Pod): Offences {
  const { fsGroup, supplementalGroups, runtimeClass } = policy.spec;
  const context = pod.spec?.securityContext ?? {};
  const path = "spec.securityContext";
  yield* groupOffences(fsGroup, context.fsGroup === undefined ? undefined : [context.fsGroup], `${path}.fsGroup`);
  yield* groupOffences(supplementalGroups, context.supplementalGroups, `${path}.supplementalGroups`);
  yield* seccompOffencesOfPod(policy, pod);
  yield* seLinuxOffences(policy, context.seLinuxOptions, `${path}.seLinuxOptions`);
  for (const key of ["hostNetwork", "hostPID", "hostIPC"] as const)
    if (pod.spec?.[key] && !policy.spec[key])
      yield invalid(`${path}.${key}`, "true", `Host ${hosts[key]} is not allowed to be used`);
  yield* sysctlOffences(policy, context.sysctls);
  yield* volumeOffences(policy, pod);

  const { runtimeClassName } = pod.spec ?? {};
  const classes = runtimeClass?.allowedRuntimeClassNames ?? [];
  if (runtimeClass && runtimeClassName !== undefined && !classes.includes("*") && !classes.includes(runtimeClassName))
    yield invalid("spec.runtimeClassName", goQuoted(runtimeClassName));

  for (const { container, path } of listContainers(pod)) yield* containerOffences(policy, pod, container, path);
}

function* containerOffences(policy: Policy, pod: Pod, container: AnyContainer, at: string): Offences {
  const { privileged, allowedProcMountTypes, readOnlyRootFilesystem, allowPrivilegeEscalation } = policy.spec;
  const context = container.securityContext ?? {};
  const path = `${at}.securityContext`;
  const runs = runsAs(pod, container);
  yield* userOffences(policy, runs, path);
  yield* groupOffences(policy.spec.runAsGroup, runs.runAsGroup === undefined ? undefined : [runs.runAsGroup], path);
  yield* seLinuxOffences(policy, runs.seLinuxOptions, `${path}.seLinuxOptions`);
  yield* appArmorOffences(policy, pod, container, at);
  yield* seccompOffences(policy, pod, container, at);

  if (context.privileged && !privileged)
    yield invalid(`${path}.privileged`, "true", "Privileged containers are not allowed");
  // hostProcess is the Windows equivalent of privileged, and newer than PodSecurityPolicy.
  if (runs.hostProcess && !privileged)
    yield invalid(`${path}.windowsOptions.hostProcess`, "true", "Privileged containers are not allowed");
  const procMount = context.procMount ?? "Default";
  if (!(allowedProcMountTypes?.length ? allowedProcMountTypes : ["Default"]).includes(procMount))
    yield invalid(`${path}.procMount`, goQuoted(procMount), "ProcMountType is not allowed");
  yield* capabilityOffences(policy, context.capabilities, `${path}.capabilities`);
  yield* portOffences(policy, container, at);

  if (readOnlyRootFilesystem && !context.readOnlyRootFilesystem)
    yield invalid(`${path}.readOnlyRootFilesystem`, "false", "ReadOnlyRootFilesystem must be set to true");
  if (allowPrivilegeEscalation === false && context.allowPrivilegeEscalation !== false) {
    const detail = "Allowing privilege escalation for containers is not allowed";
    yield invalid(`${path}.allowPrivilegeEscalation`, "true", detail);
  }
}

function* portOffences({ spec: { hostPorts = [] } }: Policy, { ports }: AnyContainer, at: string): Offences {
  const allowed = hostPorts.map(({ min, max }) => (min === max ? min : `${min}-${max}`)).join();
  for (const { hostPort = 0 } of ports ?? [])
    if (hostPort > 0 && !isWithin(hostPort, hostPorts)) {
      const detail = `Host port ${hostPort} is not allowed to be used. Allowed ports: [${allowed}]`;
      yield invalid(`${at}.hostPort`, `${hostPort}`, detail);
    }
}

/** The sysctls that Kubernetes 1.15 considered safe. */
const safe = ["kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies"];

function* sysctlOffences({ spec }: Policy, sysctls: readonly Sysctl[] = []): Offences {
  const isAmong = (patterns: readonly string[] = [], name: string) =>
    patterns.some((pattern) => (pattern.endsWith("*") ? name.startsWith(pattern.slice(0, -1)) : name === pattern));

  for (const [index, { name = "" }] of sysctls.entries()) {
    const path = `pod.spec.securityContext.sysctls[${index}]`;
    if (isAmong(spec.forbiddenSysctls, name)) yield forbiddenAt(path, `sysctl ${goQuoted(name)} is not allowed`);
    else if (!safe.includes(name) && !isAmong(spec.allowedUnsafeSysctls, name))
      yield forbiddenAt(path, `unsafe sysctl ${goQuoted(name)} is not allowed`);
  }
}
