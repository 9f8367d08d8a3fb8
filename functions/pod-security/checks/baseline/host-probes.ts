// Since 1.34: probes and lifecycle hooks must call only the pod, because the kubelet makes these calls from the node.
// Fields: httpGet.host and tcpSocket.host of livenessProbe, readinessProbe, startupProbe, lifecycle.postStart and
// lifecycle.preStop of each container. Allowed: unset, empty.

import {
  buildContainersCheck,
  chooseSingularOrPlural,
  formatQuotedNames,
  type PodSecurityCheck,
  quoteAll,
  sortUnique,
} from "../check-builders.ts";

/** Probes and lifecycle hooks must not name a host. */
const checkProbes = buildContainersCheck(
  "probe or lifecycle host",
  ({ livenessProbe, readinessProbe, startupProbe, lifecycle }) =>
    [livenessProbe, readinessProbe, startupProbe, lifecycle?.postStart, lifecycle?.preStop]
      .flatMap((action) => [action?.httpGet?.host ?? "", action?.tcpSocket?.host ?? ""])
      .filter((host) => host !== ""),
  (containerNames, hosts) => {
    const names = sortUnique(containerNames);
    const use = chooseSingularOrPlural(names.length, "uses", "use");
    return `${formatQuotedNames("container", names)} ${use} ${chooseSingularOrPlural(hosts.length, "probe or lifecycle host")} ${quoteAll(hosts)}`;
  },
);
export const hostProbesAndHostLifecycle: PodSecurityCheck = { level: "baseline", since: { "1.34": checkProbes } };
