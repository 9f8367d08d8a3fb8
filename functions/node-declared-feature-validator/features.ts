import type { Node, Pod } from "kubernetes-types/core/v1.d.ts";
import { compareQuantities } from "postern/objects/quantity";
import type { SharingPod, Stated } from "postern/objects/resources";

/** With what its kubelet can do; younger than kubernetes-types. */
export type Declaring = Node & { status?: { declaredFeatures?: string[] } };

/** What a node must be able to do for an update of a pod, by name. */
export const requiredFeatures = (old: Pod, pod: Pod): string[] => [
  ...(changesItsOwn(old, pod) ? ["InPlacePodLevelResourcesVerticalScaling"] : []),
  ...(changesAnInitContainer(old, pod) ? ["InPlacePodVerticalScalingInitContainers"] : []),
];

/** What a pod sets for all its containers. To set nothing is another thing than not to set it. */
const changesItsOwn = ({ spec: old }: SharingPod, { spec }: SharingPod): boolean => {
  const [before, now] = [old?.resources, spec?.resources];
  if (!before || !now) return before !== now;
  return differ(before, now, (one, other) => compareQuantities(one, other) === 0);
};

/** Those that stay beside the others take no feature. Here upstream takes another notation for a change. */
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
