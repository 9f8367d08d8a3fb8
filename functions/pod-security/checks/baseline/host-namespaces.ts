// A pod must not use its node's namespaces for network, processes or IPC.
// Fields: spec.hostNetwork, spec.hostPID, spec.hostIPC. Allowed: unset, false.

import type { PodSecurityCheck, PodSecurityCheckFunction } from "../check-builders.ts";

const checkNamespaces: PodSecurityCheckFunction = ({ spec }) => {
  const shared = (["hostNetwork", "hostPID", "hostIPC"] as const).filter((field) => spec[field] === true);
  if (shared.length > 0)
    return { reason: "host namespaces", detail: shared.map((field) => `${field}=true`).join(", ") };
};
export const hostNamespaces: PodSecurityCheck = { level: "baseline", since: { "1.0": checkNamespaces } };
