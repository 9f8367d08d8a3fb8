import {
  type Check,
  judgeContainers,
  listed,
  plural,
  quoted,
  sorted,
  unlessAmongOwnUsers,
  unlessOnWindows,
} from "./check-builders.ts";

const judgePrivileged = judgeContainers(
  "privileged",
  (_, { privileged }) => (privileged === true ? ["true"] : []),
  (names) => `${listed("container", names)} must not set securityContext.privileged=true`,
);
export const privileged: Check = { level: "baseline", since: { "1.0": judgePrivileged } };

const judgeEscalation = judgeContainers(
  "allowPrivilegeEscalation != false",
  (_, { allowPrivilegeEscalation }) => (allowPrivilegeEscalation === false ? [] : ["true"]),
  (names) => `${listed("container", names)} must set securityContext.allowPrivilegeEscalation=false`,
);
export const allowPrivilegeEscalation: Check = {
  level: "restricted",
  since: { "1.8": judgeEscalation, "1.25": unlessOnWindows(judgeEscalation) },
};

const byDefault = new Set(
  (
    "AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE SETFCAP SETGID SETPCAP SETUID " +
    "SYS_CHROOT"
  ).split(" "),
);
const addsForbidden = (names: string[], added: string[]) =>
  `${listed("container", names)} must not include ${quoted(added)} in securityContext.capabilities.add`;

export const capabilitiesBaseline: Check = {
  level: "baseline",
  since: {
    "1.0": judgeContainers(
      "non-default capabilities",
      (_, { capabilities }) => (capabilities?.add ?? []).filter((capability) => !byDefault.has(capability)),
      addsForbidden,
    ),
  },
};

const unrestricted = "unrestricted capabilities";
const judgeDropped = judgeContainers(
  unrestricted,
  (_, { capabilities }) => (capabilities?.drop?.includes("ALL") ? [] : ["ALL"]),
  (names) => `${listed("container", names)} must set securityContext.capabilities.drop=["ALL"]`,
);
const judgeAdded = judgeContainers(
  unrestricted,
  (_, { capabilities }) => (capabilities?.add ?? []).filter((capability) => capability !== "NET_BIND_SERVICE"),
  addsForbidden,
);
const judgeCapabilities: Check["since"]["1.0"] = (subject) => {
  const found = [judgeDropped, judgeAdded].flatMap((judge) => judge(subject)?.detail ?? []);
  if (found.length > 0) return { reason: unrestricted, detail: found.join("; ") };
};
export const capabilitiesRestricted: Check = {
  level: "restricted",
  since: { "1.22": judgeCapabilities, "1.25": unlessOnWindows(judgeCapabilities) },
  insteadOf: capabilitiesBaseline,
};

const judgePorts = judgeContainers(
  "hostPort",
  ({ ports }) => (ports ?? []).flatMap(({ hostPort }) => (hostPort ? [String(hostPort)] : [])),
  (names, ports) => {
    const use = plural(names.length, "uses", "use");
    return `${listed("container", names)} ${use} ${plural(ports.length, "hostPort")} ${ports.join(", ")}`;
  },
);
export const hostPorts: Check = { level: "baseline", since: { "1.0": judgePorts } };

/** The kubelet sends these requests from the node; they must go to the pod only. */
const judgeProbes = judgeContainers(
  "probe or lifecycle host",
  ({ livenessProbe, readinessProbe, startupProbe, lifecycle }) =>
    [livenessProbe, readinessProbe, startupProbe, lifecycle?.postStart, lifecycle?.preStop]
      .flatMap((action) => [action?.httpGet?.host ?? "", action?.tcpSocket?.host ?? ""])
      .filter((host) => host !== ""),
  (all, hosts) => {
    const names = sorted(all);
    const use = plural(names.length, "uses", "use");
    return `${listed("container", names)} ${use} ${plural(hosts.length, "probe or lifecycle host")} ${quoted(hosts)}`;
  },
);
export const hostProbesAndHostLifecycle: Check = { level: "baseline", since: { "1.34": judgeProbes } };

const judgeProcMount = judgeContainers(
  "procMount",
  (_, { procMount = "Default" }) => (procMount === "Default" ? [] : [procMount]),
  (names, mounts) => `${listed("container", names)} must not set securityContext.procMount to ${quoted(mounts)}`,
);
export const procMount: Check = {
  level: "baseline",
  since: { "1.0": judgeProcMount, "1.35": unlessAmongOwnUsers(judgeProcMount) },
};
/** Unlike baseline, restricted has no exception for user namespaces. */
export const procMountRestricted: Check = {
  level: "restricted",
  since: { "1.35": judgeProcMount },
  insteadOf: procMount,
};
