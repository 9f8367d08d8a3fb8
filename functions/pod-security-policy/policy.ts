import type { SELinuxOptions } from "postern/kubernetes/core/v1";

/** A range of user or group ids from `min` to `max`, both included. */
export interface IdRange {
  min: number;
  max: number;
}

/** A PodSecurityPolicy's rule for a pod's group ids (fsGroup or supplementalGroups): any, or ids in these ranges. */
export interface PodGroupIdRule {
  rule: "MustRunAs" | "MayRunAs" | "RunAsAny";
  ranges?: IdRange[];
}

/** A PodSecurityPolicy of policy/v1beta1, which no API server serves any more. */
export interface PodSecurityPolicyObject {
  metadata: { name: string; annotations?: Record<string, string> };
  spec: {
    privileged?: boolean;
    defaultAddCapabilities?: string[];
    requiredDropCapabilities?: string[];
    allowedCapabilities?: string[];
    volumes?: string[];
    hostNetwork?: boolean;
    hostPorts?: IdRange[];
    hostPID?: boolean;
    hostIPC?: boolean;
    seLinux: { rule: "MustRunAs" | "RunAsAny"; seLinuxOptions?: SELinuxOptions };
    runAsUser: { rule: "MustRunAs" | "MustRunAsNonRoot" | "RunAsAny"; ranges?: IdRange[] };
    runAsGroup?: PodGroupIdRule;
    supplementalGroups: PodGroupIdRule;
    fsGroup: PodGroupIdRule;
    readOnlyRootFilesystem?: boolean;
    defaultAllowPrivilegeEscalation?: boolean;
    allowPrivilegeEscalation?: boolean;
    allowedHostPaths?: { pathPrefix: string; readOnly?: boolean }[];
    allowedFlexVolumes?: { driver: string }[];
    allowedCSIDrivers?: { name: string }[];
    allowedUnsafeSysctls?: string[];
    forbiddenSysctls?: string[];
    allowedProcMountTypes?: string[];
    runtimeClass?: { allowedRuntimeClassNames?: string[]; defaultRuntimeClassName?: string };
  };
  /** The users who may use the policy. Kubernetes' own kind has no such field: it replaces RBAC's verb `use`. */
  use?: PodSecurityPolicyUsers;
}

/** The users who may use a PodSecurityPolicy; without `namespaces`, in all namespaces. */
export interface PodSecurityPolicyUsers {
  users?: string[];
  groups?: string[];
  /** Written as `namespace:name`. */
  serviceAccounts?: string[];
  namespaces?: string[];
}

export const isWithinRanges = (id: number, ranges: readonly IdRange[] = []) =>
  ranges.some(({ min, max }) => min <= id && id <= max);
