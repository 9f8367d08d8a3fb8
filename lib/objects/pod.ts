import type { Container, EphemeralContainer, Pod, Volume } from "../kubernetes/core/v1.ts";

/** A container, and its path in the pod, such as `spec.initContainers[0]`. */
export interface ContainerWithPath {
  container: Container | EphemeralContainer;
  path: string;
}

const allKinds = ["initContainers", "containers", "ephemeralContainers"] as const;
type ContainerKind = (typeof allKinds)[number];
/** Returns a pod's containers of some kinds. By default, returns all: init, regular, and then ephemeral containers. */
export const listContainers = ({ spec }: Pod, kinds: readonly ContainerKind[] = allKinds): ContainerWithPath[] =>
  kinds.flatMap((kind) =>
    (spec?.[kind] ?? []).map((container, index) => ({ container, path: `spec.${kind}[${index}]` })),
  );

/** Returns a CEL expression for a pod's containers. In the API server, `containers` is null if a pod has none. */
export const listContainersInCel = (
  pod: "object" | "oldObject",
  kinds: readonly ContainerKind[] = allKinds,
): string => {
  const lists = kinds.map((kind) =>
    kind === "containers"
      ? `(${pod}.spec.?containers.orValue(null) == null ? [] : ${pod}.spec.containers)`
      : `${pod}.spec.?${kind}.orValue([])`,
  );
  return `(${lists.join(" + ")})`;
};

/** Returns the images that a pod mounts, with paths such as `spec.volumes[0].image`. */
export const listImageVolumes = ({ spec }: Pod) =>
  (spec?.volumes ?? []).flatMap(({ image }, index) => (image ? [{ image, path: `spec.volumes[${index}].image` }] : []));

/** Reports whether a volume has no source, such as `secret`. The API server makes such a volume an empty directory. */
export const isSourceless = (volume: Volume): boolean => Object.keys(volume).every((key) => key === "name");

/** Reports whether a pod is the API server's copy of a kubelet's static pod. */
export const isMirrorPod = ({ metadata }: Pod): boolean =>
  metadata?.annotations?.["kubernetes.io/config.mirror"] !== undefined;
