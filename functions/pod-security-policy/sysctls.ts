import type { Sysctl } from "kubernetes-types/core/v1.d.ts";
import { forbiddenAt, type Offences, quoted } from "./offence.ts";
import type { Policy } from "./policy.ts";

/** Those that Kubernetes 1.15 took for safe. */
const safe = ["kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies"];

export function* sysctlOffences({ spec }: Policy, sysctls: readonly Sysctl[] = []): Offences {
  const isAmong = (patterns: readonly string[] = [], name: string) =>
    patterns.some((pattern) => (pattern.endsWith("*") ? name.startsWith(pattern.slice(0, -1)) : name === pattern));

  for (const [index, { name = "" }] of sysctls.entries()) {
    const path = `pod.spec.securityContext.sysctls[${index}]`;
    if (isAmong(spec.forbiddenSysctls, name)) yield forbiddenAt(path, `sysctl ${quoted(name)} is not allowed`);
    else if (!safe.includes(name) && !isAmong(spec.allowedUnsafeSysctls, name))
      yield forbiddenAt(path, `unsafe sysctl ${quoted(name)} is not allowed`);
  }
}
