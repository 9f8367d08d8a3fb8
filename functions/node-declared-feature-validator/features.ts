import type { Pod, ResourceRequirements } from "postern/kubernetes/core/v1";
import { compareQuantities } from "postern/objects/quantity";

/** By a feature's name: a function that reports whether a change of a pod requires that its node has the feature. */
export type RequiredFeatures = Record<string, (old: Pod, pod: Pod) => boolean>;

type AmountComparison = (left: string, right: string) => boolean;
const isEqual: AmountComparison = (left, right) => compareQuantities(left, right) === 0;
const isWrittenAlike: AmountComparison = (left, right) => left === right;

/** Builds a check whether an update changes `spec.resources` of a pod. Empty resources differ from absent ones. */
const buildPodResourcesCheck =
  (isSame: AmountComparison) =>
  ({ spec: old }: Pod, { spec }: Pod): boolean => {
    const [oldResources, resources] = [old?.resources, spec?.resources];
    if (!oldResources || !resources) return oldResources !== resources;
    return areDifferent(oldResources, resources, isSame);
  };

/**
 * Reports whether an update changes the resources of an init container other than a sidecar. As in kube-apiserver, a
 * new notation of the same amount is a change, too, such as 1000m after 1.
 */
const changesInitContainer = ({ spec: old }: Pod, { spec }: Pod): boolean =>
  (old?.initContainers ?? []).some(
    ({ restartPolicy, resources = {} }, index) =>
      restartPolicy !== "Always" &&
      areDifferent(resources, spec?.initContainers?.[index]?.resources ?? {}, isWrittenAlike),
  );

/** Reports whether an update changes the requested CPU of a container, in a pod of the QoS class Guaranteed. */
const changesGuaranteedCpu = ({ spec: old, status }: Pod, { spec }: Pod): boolean =>
  status?.qosClass === "Guaranteed" &&
  (old?.containers ?? []).some(({ resources }, index) => {
    const { requests } = spec?.containers?.[index]?.resources ?? {};
    return !isEqual(resources?.requests?.cpu ?? "0", requests?.cpu ?? "0");
  });

/**
 * The features of each minor version of Kubernetes; before 1.35, nodes declare none. For a pod's own resources, 1.35
 * compares amounts as texts, and later versions by value.
 */
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

/** Reports whether requests, limits or claims differ. `isSame` compares amounts. */
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
