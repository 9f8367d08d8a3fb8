// A pod may set only sysctls that affect neither other pods nor the node.
// Field: spec.securityContext.sysctls[*].name. Allowed: the names below. Newer versions of Kubernetes allow more names.

import type { PodSecurityCheck, PodSecurityCheckFunction } from "../check-builders.ts";

/** Returns a check that allows a pod to set only the sysctls `names`. */
const buildSysctlCheck = (...names: string[]): PodSecurityCheckFunction => {
  const allowed = new Set(names);
  return ({ spec }) => {
    const forbidden = (spec.securityContext?.sysctls ?? [])
      .map(({ name = "" }) => name)
      .filter((name) => !allowed.has(name));
    if (forbidden.length > 0) return { reason: "forbidden sysctls", detail: forbidden.join(", ") };
  };
};
// The allowed names since minor versions of Kubernetes: `since27` since 1.27.
const since0 = (
  "kernel.shm_rmid_forced net.ipv4.ip_local_port_range net.ipv4.ip_unprivileged_port_start " +
  "net.ipv4.ping_group_range net.ipv4.tcp_syncookies"
).split(" ");
const since27 = [...since0, "net.ipv4.ip_local_reserved_ports"];
const keepalive = ["intvl", "probes", "time"].map((name) => `net.ipv4.tcp_keepalive_${name}`);
const since29 = [...since27, "net.ipv4.tcp_fin_timeout", ...keepalive];
const since32 = [...since29, "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"];
const since37 = [...since32, "net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_notsent_lowat"];

/** Pods may set only safe sysctls. Later versions of Kubernetes allow more of them. */
export const sysctls: PodSecurityCheck = {
  level: "baseline",
  since: {
    "1.0": buildSysctlCheck(...since0),
    "1.27": buildSysctlCheck(...since27),
    "1.29": buildSysctlCheck(...since29),
    "1.32": buildSysctlCheck(...since32),
    "1.37": buildSysctlCheck(...since37),
  },
};
