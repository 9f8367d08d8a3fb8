import type { Container, EphemeralContainer, Pod, Volume } from "../kubernetes/core/v1.ts";
import { listContainers } from "./pod.ts";

/** Returns the names of all secrets that a pod refers to. */
export const listSecrets = (pod: Pod): string[] => {
  const { imagePullSecrets = [], volumes = [] } = pod.spec ?? {};
  return [
    ...imagePullSecrets.map(({ name }) => name),
    ...listContainers(pod).flatMap(({ container }) => listContainerSecrets(container).map(({ name }) => name)),
    ...volumes.flatMap(listVolumeSecrets),
  ].filter((name): name is string => Boolean(name));
};

/** Lists the names of the Secrets that a volume uses; undefined for each that is not set. */
const listVolumeSecrets = (volume: Volume): (string | undefined)[] => {
  const { azureFile, cephfs, cinder, csi, flexVolume, iscsi, projected, rbd, scaleIO, secret, storageos } = volume;
  return [
    azureFile?.secretName,
    secret?.secretName,
    csi?.nodePublishSecretRef?.name,
    ...[cephfs, cinder, flexVolume, iscsi, rbd, scaleIO, storageos].map((source) => source?.secretRef?.name),
    ...(projected?.sources ?? []).map((source) => source.secret?.name),
  ];
};

/**
 * Returns the names of the secrets in a container's environment. `by` says where each is named: `envVar A` or
 * `envFrom`.
 */
export const listContainerSecrets = ({ env = [], envFrom = [] }: Container | EphemeralContainer) => [
  ...env.flatMap(({ name = "", valueFrom }) =>
    valueFrom?.secretKeyRef ? [{ by: `envVar ${name}`, name: valueFrom.secretKeyRef.name ?? "" }] : [],
  ),
  ...envFrom.flatMap(({ secretRef }) => (secretRef ? [{ by: "envFrom", name: secretRef.name ?? "" }] : [])),
];
