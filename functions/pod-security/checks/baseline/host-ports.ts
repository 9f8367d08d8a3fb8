// A container must not listen on a port of its node.
// Field: ports[*].hostPort of each container. Allowed: unset, 0.

import {
  buildContainersCheck,
  chooseSingularOrPlural,
  formatQuotedNames,
  type PodSecurityCheck,
} from "../check-builders.ts";

/** Containers must not use ports of the node. */
const checkPorts = buildContainersCheck(
  "hostPort",
  ({ ports }) => (ports ?? []).flatMap(({ hostPort }) => (hostPort ? [String(hostPort)] : [])),
  (names, ports) => {
    const use = chooseSingularOrPlural(names.length, "uses", "use");
    return `${formatQuotedNames("container", names)} ${use} ${chooseSingularOrPlural(ports.length, "hostPort")} ${ports.join(", ")}`;
  },
);
export const hostPorts: PodSecurityCheck = { level: "baseline", since: { "1.0": checkPorts } };
