import { type LengthUnit, labelUnitSince } from "postern/objects/label";

/** The differences between minor versions: what an API server counts if its feature gates have their default values. */
export interface QuotaGates {
  /**
   * Each container has amounts in the spec, and granted and current amounts in the status. True: each of the three is
   * summed over the pod's containers, and the largest sum counts. False: the largest of each container's amounts are
   * summed.
   */
  countsLargestPodSum: boolean;
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
  /** The unit in which a message states the length of a label, such as bytes. */
  labelUnit: LengthUnit;
}

/** The gates of the oldest version of Kubernetes. */
const oldest: QuotaGates = {
  countsLargestPodSum: false, // so each container's largest amount (of spec and status) is summed over the pod
  hasPodLevelResources: false,
  hasVolumeAttributesClasses: false,
  countsDevices: false,
  hasImplicitExtendedResources: false,
  countsDevicesAsExtendedResources: false,
  ...labelUnitSince["1.0"], // labelUnit: "characters", the unit of lengths in messages about labels
};

/** The gates, or the unit in messages, that changed with each Kubernetes version. Versions before 1.33 are as 1.33. */
export const gatesByKubernetesVersion = {
  "1.0": oldest,
  "1.34": { hasPodLevelResources: true, hasVolumeAttributesClasses: true, countsDevices: true },
  "1.35": { hasImplicitExtendedResources: true, ...labelUnitSince["1.35"] }, // labelUnit: "bytes", not "characters"
  "1.36": { countsDevicesAsExtendedResources: true },
  // A container has amounts in the spec, and granted and current ones in the status. Since 1.37, each of the three is
  // summed over the pod's containers, and the largest sum counts. Before, each container's largest amount was summed.
  "1.37": { countsLargestPodSum: true },
} as const;
