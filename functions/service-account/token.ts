import type { Pod, Volume } from "kubernetes-types/core/v1.d.ts";
import { containersOf } from "postern/objects/pod";

const mountPath = "/var/run/secrets/kubernetes.io/serviceaccount";
const prefix = "kube-api-access-";

/** Gives the token of its account to every container that has nothing else in its place; none to ephemeral ones. */
export const mountToken = (pod: Pod, uid: string): void => {
  const containers = containersOf(pod, ["initContainers", "containers"]).map(({ container }) => container);
  const lacking = containers.filter(({ volumeMounts = [] }) =>
    volumeMounts.every((one) => one.mountPath !== mountPath),
  );
  if (!pod.spec || lacking.length === 0) return;

  // Whatever has such a name is taken for it.
  const present = pod.spec.volumes?.find(({ name = "" }) => name.startsWith(prefix));
  const name = present?.name ?? `${prefix}${suffixFor(uid)}`;
  for (const container of lacking)
    container.volumeMounts = [...(container.volumeMounts ?? []), { name, readOnly: true, mountPath }];
  if (!present) pod.spec.volumes = [...(pod.spec.volumes ?? []), tokenVolume(name)];
};

/** Without vowels, and what looks like one. */
const letters = "bcdfghjklmnpqrstvwxz2456789";

/** Upstream draws five at random; here it is always the same five for a request. */
const suffixFor = (uid: string): string => {
  const digits = uid.replace(/[^0-9a-f]/g, "");
  const draw = (at: number) => Number.parseInt(digits.slice(2 * at, 2 * at + 2) || "0", 16);
  return [0, 1, 2, 3, 4].map((at) => letters[draw(at) % letters.length]).join("");
};

const tokenVolume = (name: string): Volume => ({
  name,
  projected: {
    defaultMode: 0o644,
    sources: [
      // An hour and seven seconds, by which the API server knows a token that old clients may use longer.
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
