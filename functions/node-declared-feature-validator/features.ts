import type { Node, Pod } from "kubernetes-types/core/v1.d.ts";
import { compareQuantities } from "postern/objects/quantity";
import type { SharingPod, Stated } from "postern/objects/resources";

/** Adds the features of the node's kubelet, which kubernetes-types doesn't have yet. */
export type Declaring = Node & { status?: { declaredFeatures?: string[] } };

export const requiredFeatures = (old: Pod, pod: Pod): string[] => [
  ...(changesItsOwn(old, pod) ? ["InPlacePodLevelResourcesVerticalScaling"] : []),
  ...(changesAnInitContainer(old, pod) ? ["InPlacePodVerticalScalingInitContainers"] : []),
];

/** Compares pod-level resources. Empty resources differ from absent ones. */
const changesItsOwn = ({ spec: old }: SharingPod, { spec }: SharingPod): boolean => {
  const [before, now] = [old?.resources, spec?.resources];
  if (!before || !now) return before !== now;
  return differ(before, now, (one, other) => compareQuantities(one, other) === 0);
};

/** Sidecars require no feature. Here upstream counts another notation of the same amount as a change. */
const changesAnInitContainer = ({ spec: old }: Pod, { spec }: Pod): boolean =>
  (old?.initContainers ?? []).some(
    ({ restartPolicy, resources = {} }, index) =>
      restartPolicy !== "Always" &&
      differ(resources, spec?.initContainers?.[index]?.resources ?? {}, (one, other) => one === other),
  );

type Resources = Stated & { claims?: { name: string; request?: string }[] };

const differ = (one: Resources, other: Resources, isSame: (one: string, other: string) => boolean): boolean => {
  const agreeOn = (kind: keyof Stated) => {
    const [first, second] = [new Map(Object.entries(one[kind] ?? {})), new Map(Object.entries(other[kind] ?? {}))];
    return (
      first.size === second.size &&
      [...first].every(([resource, amount]) => {
        const present = second.get(resource);
        return present !== undefined && isSame(amount, present);
      })
    );
  };
  const claims = ({ claims = [] }: Resources) => JSON.stringify(claims.map(({ name, request }) => [name, request]));
  return !agreeOn("requests") || !agreeOn("limits") || claims(one) !== claims(other);
};
