import type { Pod, Sysctl } from "postern/kubernetes/core/v1";
import { quoteAsGo } from "postern/objects/go/quoted";
import { listContainers } from "postern/objects/pod";
import { listCapabilityOffences } from "./capabilities.ts";
import {
  type AnyContainer,
  getEffectiveSecurityContext,
  listGroupOffences,
  listSeLinuxOffences,
  listUserOffences,
} from "./identity.ts";
import { describeForbidden, describeInvalid, type PodSecurityPolicyOffences } from "./offence.ts";
import { isWithinRanges, type PodSecurityPolicyObject } from "./policy.ts";
import { listAppArmorOffences, listPodSeccompOffences, listSeccompOffences } from "./profiles.ts";
import { listVolumeOffences } from "./volumes.ts";

const hostNamespaceNames = { hostNetwork: "network", hostPID: "PID", hostIPC: "IPC" } as const;

/** Lists the parts of a pod that a PodSecurityPolicy forbids, as sentences in upstream's order. */
export function* listPodOffences(policy: PodSecurityPolicyObject, pod: Pod): PodSecurityPolicyOffences {
  const { fsGroup, supplementalGroups, runtimeClass } = policy.spec;
  const context = pod.spec?.securityContext ?? {};
  const path = "spec.securityContext";
  yield* listGroupOffences(fsGroup, context.fsGroup === undefined ? undefined : [context.fsGroup], `${path}.fsGroup`);
  yield* listGroupOffences(supplementalGroups, context.supplementalGroups, `${path}.supplementalGroups`);
  yield* listPodSeccompOffences(policy, pod);
  yield* listSeLinuxOffences(policy, context.seLinuxOptions, `${path}.seLinuxOptions`);
  for (const key of ["hostNetwork", "hostPID", "hostIPC"] as const)
    if (pod.spec?.[key] && !policy.spec[key])
      yield describeInvalid(`${path}.${key}`, "true", `Host ${hostNamespaceNames[key]} is not allowed to be used`);
  yield* listSysctlOffences(policy, context.sysctls);
  yield* listVolumeOffences(policy, pod);

  const { runtimeClassName } = pod.spec ?? {};
  const classes = runtimeClass?.allowedRuntimeClassNames ?? [];
  if (runtimeClass && runtimeClassName !== undefined && !classes.includes("*") && !classes.includes(runtimeClassName))
    yield describeInvalid("spec.runtimeClassName", quoteAsGo(runtimeClassName));

  for (const { container, path } of listContainers(pod)) yield* listContainerOffences(policy, pod, container, path);
}

/** Lists how a container breaks a policy. `at` is the container's path in the pod. */
function* listContainerOffences(
  policy: PodSecurityPolicyObject,
  pod: Pod,
  container: AnyContainer,
  at: string,
): PodSecurityPolicyOffences {
  const { privileged, allowedProcMountTypes, readOnlyRootFilesystem, allowPrivilegeEscalation } = policy.spec;
  const context = container.securityContext ?? {};
  const path = `${at}.securityContext`;
  const effective = getEffectiveSecurityContext(pod, container);
  const { runAsGroup } = effective;
  yield* listUserOffences(policy, effective, path);
  yield* listGroupOffences(policy.spec.runAsGroup, runAsGroup === undefined ? undefined : [runAsGroup], path);
  yield* listSeLinuxOffences(policy, effective.seLinuxOptions, `${path}.seLinuxOptions`);
  yield* listAppArmorOffences(policy, pod, container, at);
  yield* listSeccompOffences(policy, pod, container, at);

  if (context.privileged && !privileged)
    yield describeInvalid(`${path}.privileged`, "true", "Privileged containers are not allowed");
  // hostProcess is the Windows equivalent of privileged, and newer than PodSecurityPolicy.
  if (effective.hostProcess && !privileged)
    yield describeInvalid(`${path}.windowsOptions.hostProcess`, "true", "Privileged containers are not allowed");
  const procMount = context.procMount ?? "Default";
  if (!(allowedProcMountTypes?.length ? allowedProcMountTypes : ["Default"]).includes(procMount))
    yield describeInvalid(`${path}.procMount`, quoteAsGo(procMount), "ProcMountType is not allowed");
  yield* listCapabilityOffences(policy, context.capabilities, `${path}.capabilities`);
  yield* listPortOffences(policy, container, at);

  if (readOnlyRootFilesystem && !context.readOnlyRootFilesystem)
    yield describeInvalid(`${path}.readOnlyRootFilesystem`, "false", "ReadOnlyRootFilesystem must be set to true");
  if (allowPrivilegeEscalation === false && context.allowPrivilegeEscalation !== false) {
    const detail = "Allowing privilege escalation for containers is not allowed";
    yield describeInvalid(`${path}.allowPrivilegeEscalation`, "true", detail);
  }
}

/** Lists the host ports of a container that the policy doesn't allow. */
function* listPortOffences(
  { spec: { hostPorts = [] } }: PodSecurityPolicyObject,
  { ports }: AnyContainer,
  at: string,
): PodSecurityPolicyOffences {
  const allowed = hostPorts.map(({ min, max }) => (min === max ? min : `${min}-${max}`)).join();
  for (const { hostPort = 0 } of ports ?? [])
    if (hostPort > 0 && !isWithinRanges(hostPort, hostPorts)) {
      const detail = `Host port ${hostPort} is not allowed to be used. Allowed ports: [${allowed}]`;
      yield describeInvalid(`${at}.hostPort`, `${hostPort}`, detail);
    }
}

/** The sysctls that Kubernetes 1.15 considered safe. */
const safeSysctls = ["kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies"];

/** Lists the sysctls of a pod that the policy forbids, or that are unsafe and not allowed. */
function* listSysctlOffences(
  { spec }: PodSecurityPolicyObject,
  sysctls: readonly Sysctl[] = [],
): PodSecurityPolicyOffences {
  /** Reports whether a name matches a pattern such as `kernel.msg*` or `kernel.sem`. */
  const matchesAny = (patterns: readonly string[] = [], name: string) =>
    patterns.some((pattern) => (pattern.endsWith("*") ? name.startsWith(pattern.slice(0, -1)) : name === pattern));

  for (const [index, { name = "" }] of sysctls.entries()) {
    const path = `pod.spec.securityContext.sysctls[${index}]`;
    if (matchesAny(spec.forbiddenSysctls, name))
      yield describeForbidden(path, `sysctl ${quoteAsGo(name)} is not allowed`);
    else if (!safeSysctls.includes(name) && !matchesAny(spec.allowedUnsafeSysctls, name))
      yield describeForbidden(path, `unsafe sysctl ${quoteAsGo(name)} is not allowed`);
  }
}
