import type { Pod, ResourceRequirements } from "postern/kubernetes/core/v1";
import { compareQuantities } from "postern/objects/quantity";

/** A feature that a node must declare, by its name, so that a pod on it may be changed from `old` to `pod`. */
export type RequiredFeatures = Record<string, (old: Pod, pod: Pod) => boolean>;

type AmountComparison = (left: string, right: string) => boolean;
const isEqual: AmountComparison = (left, right) => compareQuantities(left, right) === 0;
const isWrittenAlike: AmountComparison = (left, right) => left === right;

/** Reports whether an update changes a pod's own resources (`spec.resources`). Empty ones differ from absent ones. */
const buildPodResourcesCheck =
  (isSame: AmountComparison) =>
  ({ spec: old }: Pod, { spec }: Pod): boolean => {
    const [oldResources, resources] = [old?.resources, spec?.resources];
    if (!oldResources || !resources) return oldResources !== resources;
    return areDifferent(oldResources, resources, isSame);
  };

/**
 * Reports whether an update changes an init container's resources. Ignores sidecars, as kube-apiserver does; another
 * notation of the same amount counts as a change here.
 */
const changesInitContainer = ({ spec: old }: Pod, { spec }: Pod): boolean =>
  (old?.initContainers ?? []).some(
    ({ restartPolicy, resources = {} }, index) =>
      restartPolicy !== "Always" &&
      areDifferent(resources, spec?.initContainers?.[index]?.resources ?? {}, isWrittenAlike),
  );

/** Reports whether an update changes the CPU that a container of a pod of the class Guaranteed requests. */
const changesGuaranteedCpu = ({ spec: old, status }: Pod, { spec }: Pod): boolean =>
  status?.qosClass === "Guaranteed" &&
  (old?.containers ?? []).some(({ resources }, index) => {
    const { requests } = spec?.containers?.[index]?.resources ?? {};
    return !isEqual(resources?.requests?.cpu ?? "0", requests?.cpu ?? "0");
  });

/** The features of each minor version of Kubernetes; before 1.35, nodes declare none. */
export const featuresSince = {
  "1.0": { features: {} as RequiredFeatures },
  "1.35": {
    features: {
      GuaranteedQoSPodCPUResize: changesGuaranteedCpu,
      InPlacePodLevelResourcesVerticalScaling: buildPodResourcesCheck(isWrittenAlike),
    },
  },
  "1.36": {
    features: {
      InPlacePodLevelResourcesVerticalScaling: buildPodResourcesCheck(isEqual),
      InPlacePodVerticalScalingInitContainers: changesInitContainer,
    },
  },
};

const areDifferent = (left: ResourceRequirements, right: ResourceRequirements, isSame: AmountComparison): boolean => {
  const isSameIn = (kind: "requests" | "limits") => {
    const [first, second] = [new Map(Object.entries(left[kind] ?? {})), new Map(Object.entries(right[kind] ?? {}))];
    return (
      first.size === second.size &&
      [...first].every(([resource, amount]) => {
        const present = second.get(resource);
        return present !== undefined && isSame(amount, present);
      })
    );
  };
  const printClaims = ({ claims = [] }: ResourceRequirements) =>
    JSON.stringify(claims.map(({ name, request }) => [name, request]));
  return !isSameIn("requests") || !isSameIn("limits") || printClaims(left) !== printClaims(right);
};
