import type { Pod, Volume } from "postern/kubernetes/core/v1";
import { listContainers } from "postern/objects/pod";

const mountPath = "/var/run/secrets/kubernetes.io/serviceaccount";
const prefix = "kube-api-access-";

/** Mounts the ServiceAccount's token in init and regular containers, except in containers with a mount at this path. */
export const mountServiceAccountToken = (pod: Pod, uid: string): void => {
  const containers = listContainers(pod, ["initContainers", "containers"]).map(({ container }) => container);
  const unmounted = containers.filter(({ volumeMounts = [] }) =>
    volumeMounts.every((mount) => mount.mountPath !== mountPath),
  );
  if (!pod.spec || unmounted.length === 0) return;
  // A volume whose name has this prefix counts as the token's volume.
  const present = pod.spec.volumes?.find(({ name = "" }) => name.startsWith(prefix));
  const name = present?.name ?? `${prefix}${deriveSuffix(uid)}`;
  for (const container of unmounted)
    container.volumeMounts = [...(container.volumeMounts ?? []), { name, readOnly: true, mountPath }];
  if (!present) pod.spec.volumes = [...(pod.spec.volumes ?? []), buildTokenVolume(name)];
};

/** The letters of generated names, as in upstream: no vowels, and no digits that look like vowels. */
const letters = "bcdfghjklmnpqrstvwxz2456789";

/** Returns the suffix of a token volume's name: five letters, derived from the request's uid. Upstream's are random. */
const deriveSuffix = (uid: string): string => {
  const digits = uid.replace(/[^0-9a-f]/g, "");
  const drawByte = (at: number) => Number.parseInt(digits.slice(2 * at, 2 * at + 2) || "0", 16);
  return [0, 1, 2, 3, 4].map((at) => letters[drawByte(at) % letters.length]).join("");
};

/** Returns the volume with a service account's token, the cluster's CA and the namespace. */
const buildTokenVolume = (name: string): Volume => ({
  name,
  projected: {
    defaultMode: 0o644,
    sources: [
      // The API server may extend the life of a token of exactly 3607 seconds, for old clients that don't renew it.
      { serviceAccountToken: { expirationSeconds: 3607, path: "token" } },
      { configMap: { name: "kube-root-ca.crt", items: [{ key: "ca.crt", path: "ca.crt" }] } },
      {
        downwardAPI: {
          items: [{ path: "namespace", fieldRef: { apiVersion: "v1", fieldPath: "metadata.namespace" } }],
        },
      },
    ],
  },
});
