import type { Check, Judge } from "./check.ts";

const judging = (...names: string[]): Judge => {
  const allowed = new Set(names);
  return ({ spec }) => {
    const forbidden = (spec.securityContext?.sysctls ?? [])
      .map(({ name = "" }) => name)
      .filter((name) => !allowed.has(name));
    if (forbidden.length > 0) return { reason: "forbidden sysctls", detail: forbidden.join(", ") };
  };
};

const first = [
  ...["kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start"],
  ...["net.ipv4.ping_group_range", "net.ipv4.tcp_syncookies"],
];
const since27 = [...first, "net.ipv4.ip_local_reserved_ports"];
const since29 = [
  ...[...since27, "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl"],
  ...["net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_keepalive_time"],
];
const since32 = [...since29, "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"];

export const sysctls: Check = {
  level: "baseline",
  since: {
    "1.0": judging(...first),
    "1.27": judging(...since27),
    "1.29": judging(...since29),
    "1.32": judging(...since32),
  },
};
