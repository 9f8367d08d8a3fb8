import type { Container, EphemeralContainer, Pod, Volume } from "../kubernetes/core/v1.ts";

/** A container, and its path in the pod, such as `spec.initContainers[0]`. */
export interface ContainerWithPath {
  container: Container | EphemeralContainer;
  path: string;
}

const kinds = ["initContainers", "containers", "ephemeralContainers"] as const;

/** Returns a pod's containers, or those of some kinds: first init containers, then regular, then ephemeral ones. */
export const listContainers = ({ spec }: Pod, of: readonly (typeof kinds)[number][] = kinds): ContainerWithPath[] =>
  of.flatMap((kind) => (spec?.[kind] ?? []).map((container, index) => ({ container, path: `spec.${kind}[${index}]` })));

/** Returns a CEL expression for a pod's containers; `containers` is null in the API server if a pod has none. */
export const listContainersInCel = (
  pod: "object" | "oldObject",
  of: readonly (typeof kinds)[number][] = kinds,
): string => {
  const lists = of.map((kind) =>
    kind === "containers"
      ? `(${pod}.spec.?containers.orValue(null) == null ? [] : ${pod}.spec.containers)`
      : `${pod}.spec.?${kind}.orValue([])`,
  );
  return `(${lists.join(" + ")})`;
};

/** Returns the images that a pod mounts, with paths such as `spec.volumes[0].image`. */
export const listImageVolumes = ({ spec }: Pod) =>
  (spec?.volumes ?? []).flatMap(({ image }, index) => (image ? [{ image, path: `spec.volumes[${index}].image` }] : []));

/** Reports whether a volume has no source; the API server gives it an empty directory. */
export const isSourceless = (volume: Volume): boolean => Object.keys(volume).every((key) => key === "name");

/** Reports whether a pod mirrors a static pod of the kubelet. */
export const isMirrorPod = ({ metadata }: Pod): boolean =>
  metadata?.annotations?.["kubernetes.io/config.mirror"] !== undefined;
