import type { Node, Pod } from "postern/kubernetes/core/v1";
import { compareQuantities } from "postern/objects/quantity";
import type { PodWithResources, ResourceRequirements } from "postern/objects/resources";

/** A node with the features that its kubelet declares, which kubernetes-types doesn't have yet. */
export type NodeWithFeatures = Node & { status?: { declaredFeatures?: string[] } };

/** Returns the features that a node must declare so that its pod may be changed from `old` to `pod`. */
export const listRequiredFeatures = (old: Pod, pod: Pod): string[] => [
  ...(changesPodResources(old, pod) ? ["InPlacePodLevelResourcesVerticalScaling"] : []),
  ...(changesInitContainer(old, pod) ? ["InPlacePodVerticalScalingInitContainers"] : []),
];

/** Reports whether an update changes a pod's own resources (`spec.resources`). Empty ones differ from absent ones. */
const changesPodResources = ({ spec: old }: PodWithResources, { spec }: PodWithResources): boolean => {
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

type Resources = ResourceRequirements & { claims?: { name: string; request?: string }[] };

const areDifferent = (left: Resources, right: Resources, isSame: (left: string, right: string) => boolean): boolean => {
  const isSameIn = (kind: keyof ResourceRequirements) => {
    const [first, second] = [new Map(Object.entries(left[kind] ?? {})), new Map(Object.entries(right[kind] ?? {}))];
    return (
      first.size === second.size &&
      [...first].every(([resource, amount]) => {
        const present = second.get(resource);
        return present !== undefined && isSame(amount, present);
      })
    );
  };
  const printClaims = ({ claims = [] }: Resources) =>
    JSON.stringify(claims.map(({ name, request }) => [name, request]));
  return !isSameIn("requests") || !isSameIn("limits") || printClaims(left) !== printClaims(right);
};
