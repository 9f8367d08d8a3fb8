import { type LengthUnit, labelUnitSince } from "postern/objects/label";

/** What an API server counts with the default values of its feature gates. */
export interface QuotaGates {
  /** Whether the statuses of containers count in sums over the pod, instead of for each container. */
  sumsUpStatuses: boolean;
  /** Whether resources can be set for a whole pod (PodLevelResources). */
  hasPodLevelResources: boolean;
  /** Whether PersistentVolumeClaims are in the scope VolumeAttributesClass (VolumeAttributesClass). */
  hasVolumeAttributesClasses: boolean;
  /** Whether the devices of ResourceClaims count (DynamicResourceAllocation). */
  countsDevices: boolean;
  /** Whether pods can request devices by the name of their class. */
  hasImplicitExtendedResources: boolean;
  /** Whether the devices of ResourceClaims also count as extended resources (DRAExtendedResource). */
  countsDevicesAsExtendedResources: boolean;
  /** What a message about a scope's values counts. */
  labelUnit: LengthUnit;
}

const oldest: QuotaGates = {
  sumsUpStatuses: false,
  hasPodLevelResources: false,
  hasVolumeAttributesClasses: false,
  countsDevices: false,
  hasImplicitExtendedResources: false,
  countsDevicesAsExtendedResources: false,
  ...labelUnitSince["1.0"],
};

/** What each minor version of Kubernetes counts beside the one before. Those before 1.33 are taken for 1.33. */
export const gatesSince = {
  "1.0": oldest,
  "1.34": { hasPodLevelResources: true, hasVolumeAttributesClasses: true, countsDevices: true },
  "1.35": { hasImplicitExtendedResources: true, ...labelUnitSince["1.35"] },
  "1.36": { countsDevicesAsExtendedResources: true },
  "1.37": { sumsUpStatuses: true },
} as const;
