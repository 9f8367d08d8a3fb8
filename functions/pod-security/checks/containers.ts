import {
  buildContainersCheck,
  chooseSingularOrPlural,
  formatQuotedNames,
  type PodSecurityCheck,
  quoteAll,
  skipPodsWithUserNamespace,
  skipWindowsPods,
  sortUnique,
} from "./check-builders.ts";

const checkPrivileged = buildContainersCheck(
  "privileged",
  (_, { privileged }) => (privileged === true ? ["true"] : []),
  (names) => `${formatQuotedNames("container", names)} must not set securityContext.privileged=true`,
);
export const privileged: PodSecurityCheck = { level: "baseline", since: { "1.0": checkPrivileged } };

const checkEscalation = buildContainersCheck(
  "allowPrivilegeEscalation != false",
  (_, { allowPrivilegeEscalation }) => (allowPrivilegeEscalation === false ? [] : ["true"]),
  (names) => `${formatQuotedNames("container", names)} must set securityContext.allowPrivilegeEscalation=false`,
);
export const allowPrivilegeEscalation: PodSecurityCheck = {
  level: "restricted",
  since: { "1.8": checkEscalation, "1.25": skipWindowsPods(checkEscalation) },
};

const defaultCapabilities = new Set(
  (
    "AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE SETFCAP SETGID SETPCAP SETUID " +
    "SYS_CHROOT"
  ).split(" "),
);
const describeAddedCapabilities = (names: string[], added: string[]) =>
  `${formatQuotedNames("container", names)} must not include ${quoteAll(added)} in securityContext.capabilities.add`;

/** The check of added capabilities at level baseline. */
export const capabilitiesBaseline: PodSecurityCheck = {
  level: "baseline",
  since: {
    "1.0": buildContainersCheck(
      "non-default capabilities",
      (_, { capabilities }) => (capabilities?.add ?? []).filter((capability) => !defaultCapabilities.has(capability)),
      describeAddedCapabilities,
    ),
  },
};

const unrestricted = "unrestricted capabilities";
const checkDropped = buildContainersCheck(
  unrestricted,
  (_, { capabilities }) => (capabilities?.drop?.includes("ALL") ? [] : ["ALL"]),
  (names) => `${formatQuotedNames("container", names)} must set securityContext.capabilities.drop=["ALL"]`,
);
const checkAdded = buildContainersCheck(
  unrestricted,
  (_, { capabilities }) => (capabilities?.add ?? []).filter((capability) => capability !== "NET_BIND_SERVICE"),
  describeAddedCapabilities,
);
const checkCapabilities: PodSecurityCheck["since"]["1.0"] = (subject) => {
  const found = [checkDropped, checkAdded].flatMap((check) => check(subject)?.detail ?? []);
  if (found.length > 0) return { reason: unrestricted, detail: found.join("; ") };
};
export const capabilitiesRestricted: PodSecurityCheck = {
  level: "restricted",
  since: { "1.22": checkCapabilities, "1.25": skipWindowsPods(checkCapabilities) },
  insteadOf: capabilitiesBaseline,
};

const checkPorts = buildContainersCheck(
  "hostPort",
  ({ ports }) => (ports ?? []).flatMap(({ hostPort }) => (hostPort ? [String(hostPort)] : [])),
  (names, ports) => {
    const use = chooseSingularOrPlural(names.length, "uses", "use");
    return `${formatQuotedNames("container", names)} ${use} ${chooseSingularOrPlural(ports.length, "hostPort")} ${ports.join(", ")}`;
  },
);
export const hostPorts: PodSecurityCheck = { level: "baseline", since: { "1.0": checkPorts } };

/** Checks the hosts of probes and lifecycle hooks: the kubelet calls them from the node, and must call only the pod. */
const checkProbes = buildContainersCheck(
  "probe or lifecycle host",
  ({ livenessProbe, readinessProbe, startupProbe, lifecycle }) =>
    [livenessProbe, readinessProbe, startupProbe, lifecycle?.postStart, lifecycle?.preStop]
      .flatMap((action) => [action?.httpGet?.host ?? "", action?.tcpSocket?.host ?? ""])
      .filter((host) => host !== ""),
  (all, hosts) => {
    const names = sortUnique(all);
    const use = chooseSingularOrPlural(names.length, "uses", "use");
    return `${formatQuotedNames("container", names)} ${use} ${chooseSingularOrPlural(hosts.length, "probe or lifecycle host")} ${quoteAll(hosts)}`;
  },
);
export const hostProbesAndHostLifecycle: PodSecurityCheck = { level: "baseline", since: { "1.34": checkProbes } };

const checkProcMount = buildContainersCheck(
  "procMount",
  (_, { procMount = "Default" }) => (procMount === "Default" ? [] : [procMount]),
  (names, mounts) =>
    `${formatQuotedNames("container", names)} must not set securityContext.procMount to ${quoteAll(mounts)}`,
);
export const procMount: PodSecurityCheck = {
  level: "baseline",
  since: { "1.0": checkProcMount, "1.35": skipPodsWithUserNamespace(checkProcMount) },
};
/** The check of procMount at level restricted. Unlike baseline's, it has no exception for user namespaces. */
export const procMountRestricted: PodSecurityCheck = {
  level: "restricted",
  since: { "1.35": checkProcMount },
  insteadOf: procMount,
};
