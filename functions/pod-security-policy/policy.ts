import type { SELinuxOptions } from "kubernetes-types/core/v1.d.ts";

/** Both ends are included. */
export interface Range {
  min: number;
  max: number;
}

export interface GroupRule {
  rule: "MustRunAs" | "MayRunAs" | "RunAsAny";
  ranges?: Range[];
}

/** A PodSecurityPolicy of policy/v1beta1, which no API server serves any more. */
export interface Policy {
  metadata: { name: string; annotations?: Record<string, string> };
  spec: {
    privileged?: boolean;
    defaultAddCapabilities?: string[];
    requiredDropCapabilities?: string[];
    allowedCapabilities?: string[];
    volumes?: string[];
    hostNetwork?: boolean;
    hostPorts?: Range[];
    hostPID?: boolean;
    hostIPC?: boolean;
    seLinux: { rule: "MustRunAs" | "RunAsAny"; seLinuxOptions?: SELinuxOptions };
    runAsUser: { rule: "MustRunAs" | "MustRunAsNonRoot" | "RunAsAny"; ranges?: Range[] };
    runAsGroup?: GroupRule;
    supplementalGroups: GroupRule;
    fsGroup: GroupRule;
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
  use?: Use;
}

/** Without namespaces, the grant holds in all of them. */
export interface Use {
  users?: string[];
  groups?: string[];
  /** `namespace:name` */
  serviceAccounts?: string[];
  namespaces?: string[];
}

export const isWithin = (id: number, ranges: readonly Range[] = []) =>
  ranges.some(({ min, max }) => min <= id && id <= max);
