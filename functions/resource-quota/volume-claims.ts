import type { PersistentVolumeClaim } from "postern/kubernetes/core/v1";
import { compareQuantities, type Quantity, requireQuantity, roundUpToUnits } from "postern/objects/quantity";
import type { Evaluator } from "./evaluator.ts";
import { selectsClass } from "./scopes.ts";
import type { QuotaGates } from "./versions.ts";

const measuredNames = ["persistentvolumeclaims", "requests.storage"];
/** The part between a storage class and a measured name, as in `fast.storageclass.storage.k8s.io/requests.storage`. */
const classInfix = ".storageclass.storage.k8s.io/";

/** Returns functions that measure what a claim uses: of a quota for all claims, and of one for its storage class. */
export const createVolumeClaimEvaluator = (gates: QuotaGates): Evaluator<PersistentVolumeClaim> => ({
  selectNames: (names) =>
    names.filter(
      (name) =>
        name === "count/persistentvolumeclaims" ||
        measuredNames.some((measured) => name === measured || name.endsWith(`${classInfix}${measured}`)),
    ),

  measure: (claim) => {
    const storageClass =
      claim.metadata?.annotations?.["volume.beta.kubernetes.io/storage-class"] ?? claim.spec?.storageClassName;
    const storage = measureStorage(claim);
    const used: [string, Quantity][] = [
      ["persistentvolumeclaims", requireQuantity("1")],
      ...(storage ? [["requests.storage", storage] satisfies [string, Quantity]] : []),
    ];
    return new Map([
      ["count/persistentvolumeclaims", requireQuantity("1")],
      ...used,
      ...(storageClass ? used.map(([name, amount]) => [`${storageClass}${classInfix}${name}`, amount] as const) : []),
    ]);
  },
  ...(gates.hasVolumeAttributesClasses && {
    scopes: {
      classScope: "VolumeAttributesClass",
      includes: (scope, claim) =>
        scope.scopeName === "VolumeAttributesClass" && selectsClass(scope, listAttributesClasses(claim)),
    },
  }),
});

/** Returns the storage of a claim in whole bytes: the larger of the requested and the allocated amount. */
const measureStorage = ({ spec, status }: PersistentVolumeClaim): Quantity | undefined => {
  const { storage } = spec?.resources?.requests ?? {};
  if (storage === undefined) return undefined;
  const requested = roundUpToUnits(requireQuantity(storage));
  const allocated = status?.allocatedResources?.storage;
  return allocated !== undefined && compareQuantities(allocated, requested) > 0
    ? roundUpToUnits(requireQuantity(allocated))
    : requested;
};

const listAttributesClasses = ({ spec, status }: PersistentVolumeClaim): string[] =>
  [
    spec?.volumeAttributesClassName,
    status?.currentVolumeAttributesClassName,
    status?.modifyVolumeStatus?.targetVolumeAttributesClassName,
  ].flatMap((name) => name || []);
