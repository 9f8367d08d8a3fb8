import type { Pod } from "postern/kubernetes/core/v1";
import type { DeviceClass, DeviceRequest, ExactDeviceRequest, ResourceClaim } from "postern/kubernetes/resource/v1";
import type { ObjectPlace } from "postern/needs";
import {
  compareQuantities,
  type Quantity,
  requireQuantity,
  subtractQuantities,
  zeroQuantity,
} from "postern/objects/quantity";
import { maximizeAmounts, type QuantityByResource, sumAmounts } from "postern/objects/resources";
import type { AdmissionRequest } from "postern/review";
import type { Evaluator } from "./evaluator.ts";
import { isExtendedQuotaName, measurePod } from "./pods.ts";
import type { QuotaGates } from "./versions.ts";

/** The functions that read from the cluster to measure claims that also count as extended resources. */
export interface DeviceReads {
  classes(): Promise<DeviceClass[]>;
  claims(namespace?: string): Promise<ResourceClaim[]>;
  pod(place: ObjectPlace): Promise<Pod | undefined>;
}

const countName = "count/resourceclaims.resource.k8s.io";
const devicesSuffix = ".deviceclass.resource.k8s.io/devices";
const deviceClassPrefix = "requests.deviceclass.resource.kubernetes.io/";
/** The most devices of a claim. A request for all devices of a class counts as this many. */
const mostDevices = 32;

/** Returns the evaluator of ResourceClaims, which counts claims and their devices. */
export const createDeviceClaimEvaluator = async (
  request: AdmissionRequest,
  now: Date,
  gates: QuotaGates,
  reads: DeviceReads,
): Promise<Evaluator<ResourceClaim>> => {
  const isCounted = (name: string) => name === countName || name.endsWith(devicesSuffix);
  if (!gates.countsDevicesAsExtendedResources)
    return { selectNames: (names) => names.filter(isCounted), measure: measureDevices };

  /** The extended resources that device classes name, by the names of the classes. */
  const extended = new Map(
    (await reads.classes()).map(({ metadata, spec }) => [metadata?.name, spec?.extendedResourceName]),
  );
  // A quota names an extended resource by its own name, or by its device class's name after `deviceClassPrefix`.
  const ownNames = new Set([...extended.values()].filter(Boolean).map((name) => `requests.${name}`));
  const isExtended = (name: string) =>
    isExtendedQuotaName(name, gates) &&
    (ownNames.has(name) || (name.startsWith(deviceClassPrefix) && extended.has(name.slice(deviceClassPrefix.length))));
  return {
    selectNames: (names) => names.filter((name) => isCounted(name) || isExtended(name)),
    measure: async (claim) => {
      const devices = measureDevices(claim);
      const owner = await findOwner(claim, request, reads);
      // A claim for a pod's extended resources has the pod as owner. The pod is already charged for them.
      const chargedForOwner: QuantityByResource = owner ? measurePod(owner, now, gates) : new Map();
      const asExtended = [...devices].flatMap(([name, amount]) => {
        const deviceClass = name.endsWith(devicesSuffix) ? name.slice(0, -devicesSuffix.length) : "";
        if (deviceClass === "") return [];
        const resource = extended.get(deviceClass);
        return [`${deviceClassPrefix}${deviceClass}`, ...(resource ? [`requests.${resource}`] : [])].map(
          (name) => [name, subtractQuantities(amount, chargedForOwner.get(name) ?? zeroQuantity)] as const,
        );
      });
      return new Map([...devices, ...asExtended.filter(([, amount]) => compareQuantities(amount, zeroQuantity) > 0)]);
    },
  };
};

/** In API versions before v1, a request for exact devices has the fields of `exactly` directly. */
type AnyDeviceRequest = DeviceRequest & Partial<ExactDeviceRequest>;

/** Returns what a ResourceClaim counts for in quotas: one claim, and the most devices of each class that it may use. */
const measureDevices = ({ spec }: ResourceClaim): QuantityByResource => {
  const requests: AnyDeviceRequest[] = spec?.devices?.requests ?? [];
  const amounts = requests.map(({ firstAvailable = [], exactly, ...older }): QuantityByResource => {
    // `firstAvailable` lists alternatives. For each class, the largest amount among them counts.
    if (firstAvailable.length > 0)
      return maximizeAmounts(
        firstAvailable
          .map(countDevices)
          .filter(([, amount]) => amount.nanos > 0n)
          .map((entry) => new Map([entry])),
      );
    const exact = exactly ?? (older.deviceClassName === undefined ? undefined : older);
    return new Map(exact ? [countDevices(exact)] : []);
  });
  return sumAmounts([new Map([[countName, requireQuantity("1")]]), ...amounts]);
};

/** Returns the name under which quotas count the devices of a request, and the number of these devices. */
const countDevices = ({
  deviceClassName = "",
  allocationMode,
  count = 0,
}: Partial<ExactDeviceRequest>): [string, Quantity] => {
  const counts = new Map([
    ["ExactCount", count],
    ["All", mostDevices],
  ]);
  return [`${deviceClassName}${devicesSuffix}`, requireQuantity(counts.get(allocationMode ?? "") ?? 0)];
};

/**
 * Returns the pod for whose extended resources the claim was created; undefined for other claims. The charge of this
 * pod already contains the extended resources of the claim.
 */
const findOwner = async (
  claim: ResourceClaim,
  { namespace, operation }: AdmissionRequest,
  reads: DeviceReads,
): Promise<Pod | undefined> => {
  const owner = getOwningPod(claim);
  const pod = owner && (await reads.pod({ name: owner.name, namespace }));
  if (!pod || pod.metadata?.uid !== owner.uid) return undefined;
  const { name = "", creationTimestamp = "" } = claim.metadata ?? {};
  const { extendedResourceClaimStatus } = pod.status ?? {};
  if (extendedResourceClaimStatus) return extendedResourceClaimStatus.resourceClaimName === name ? pod : undefined;

  // A pod has one such claim. Until the pod's status names it, the oldest of the pod's claims counts as this one; of
  // several in the same second, the first by name. A claim that is being created is the newest.
  const isEarlier = (time: string, other: string) =>
    time < creationTimestamp || (time === creationTimestamp && (operation === "CREATE" || other < name));
  const others = (await reads.claims(namespace)).filter(
    (other) => other.metadata?.name !== name && getOwningPod(other)?.uid === owner.uid,
  );
  return others.some(({ metadata }) => isEarlier(metadata?.creationTimestamp ?? "", metadata?.name ?? ""))
    ? undefined
    : pod;
};

const getOwningPod = ({ metadata }: ResourceClaim) => {
  if (metadata?.annotations?.["resource.kubernetes.io/extended-resource-claim"] !== "true") return undefined;
  const owner = metadata.ownerReferences?.find(({ controller }) => controller);
  return owner?.kind === "Pod" && owner.apiVersion === "v1" ? owner : undefined;
};
