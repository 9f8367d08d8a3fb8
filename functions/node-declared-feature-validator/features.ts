import type { Pod, ResourceRequirements } from "postern/kubernetes/core/v1";
import { compareQuantities } from "postern/objects/quantity";

/** Returns the features that a node must declare so that its pod may be changed from `old` to `pod`. */
export const listRequiredFeatures = (old: Pod, pod: Pod): string[] => [
  ...(changesPodResources(old, pod) ? ["InPlacePodLevelResourcesVerticalScaling"] : []),
  ...(changesInitContainer(old, pod) ? ["InPlacePodVerticalScalingInitContainers"] : []),
];

/** Reports whether an update changes a pod's own resources (`spec.resources`). Empty ones differ from absent ones. */
const changesPodResources = ({ spec: old }: Pod, { spec }: Pod): boolean => {
  const [oldResources, resources] = [old?.resources, spec?.resources];
  if (!oldResources || !resources) return oldResources !== resources;
  return areDifferent(oldResources, resources, (left, right) => compareQuantities(left, right) === 0);
};

/**
 * Reports whether an update changes an init container's resources. Ignores sidecars, as kube-apiserver does; another
 * notation of the same amount counts as a change here.
 */
const changesInitContainer = ({ spec: old }: Pod, { spec }: Pod): boolean =>
  (old?.initContainers ?? []).some(
    ({ restartPolicy, resources = {} }, index) =>
      restartPolicy !== "Always" &&
      areDifferent(resources, spec?.initContainers?.[index]?.resources ?? {}, (left, right) => left === right),
  );

const areDifferent = (
  left: ResourceRequirements,
  right: ResourceRequirements,
  isSame: (left: string, right: string) => boolean,
): boolean => {
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
