import type { Container, EphemeralContainer, Pod, Volume } from "kubernetes-types/core/v1.d.ts";

/** A container, and where in the pod it stands: `spec.initContainers[0]`. */
export interface Placed {
  container: Container | EphemeralContainer;
  path: string;
}

/** A volume that is an image; younger than kubernetes-types. */
export interface ImageVolume extends Volume {
  image?: { reference?: string; pullPolicy?: string };
}

const kinds = ["initContainers", "containers", "ephemeralContainers"] as const;

/** Every container of a pod, or those of some kinds: first the init containers, then the regular, then the ephemeral. */
export const containersOf = ({ spec }: Pod, of: readonly (typeof kinds)[number][] = kinds): Placed[] =>
  of.flatMap((kind) => (spec?.[kind] ?? []).map((container, index) => ({ container, path: `spec.${kind}[${index}]` })));

/** The same containers as a list in CEL. The API server shows a pod without regular ones, which is invalid, with null. */
export const containersIn = (pod: "object" | "oldObject", of: readonly (typeof kinds)[number][] = kinds): string => {
  const lists = of.map((kind) =>
    kind === "containers"
      ? `(${pod}.spec.?containers.orValue(null) == null ? [] : ${pod}.spec.containers)`
      : `${pod}.spec.?${kind}.orValue([])`,
  );
  return `(${lists.join(" + ")})`;
};

/** The images that a pod mounts, and where they stand: `spec.volumes[0].image`. */
export const imageVolumesOf = ({ spec }: Pod) =>
  (spec?.volumes ?? []).flatMap(({ image }: ImageVolume, index) =>
    image ? [{ image, path: `spec.volumes[${index}].image` }] : [],
  );

/** Reports whether a volume has no source; the API server gives it an empty directory. */
export const isSourceless = (volume: Volume): boolean => Object.keys(volume).every((key) => key === "name");

/** Whether a pod stands for one that the kubelet runs by itself. */
export const isMirror = ({ metadata }: Pod): boolean =>
  metadata?.annotations?.["kubernetes.io/config.mirror"] !== undefined;
