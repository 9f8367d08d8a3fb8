import type { Pod, Volume } from "postern/kubernetes/core/v1";
import { quoteAsGo } from "postern/objects/go/quoted";
import { isSourceless, listContainers } from "postern/objects/pod";
import { describeInvalid, type PodSecurityPolicyOffences } from "./offence.ts";
import type { PodSecurityPolicyObject } from "./policy.ts";

/**
 * The volume types that a PodSecurityPolicy can name, in the order of the checks. The types `ephemeral` and `image` are
 * newer than PodSecurityPolicies.
 */
export const volumeTypes = (
  "hostPath emptyDir gcePersistentDisk awsElasticBlockStore gitRepo secret nfs iscsi glusterfs " +
  "persistentVolumeClaim rbd flexVolume cinder cephFS flocker downwardAPI fc azureFile configMap vsphereVolume " +
  "quobyte azureDisk photonPersistentDisk storageos projected portworxVolume scaleIO csi ephemeral image"
).split(" ");

/** Lists the volumes of a pod that the policy doesn't allow. */
export function* listVolumeOffences(policy: PodSecurityPolicyObject, pod: Pod): PodSecurityPolicyOffences {
  const { volumes: allowed = [], allowedFlexVolumes = [], allowedCSIDrivers = [] } = policy.spec;
  let writable: Map<string, string[]> | undefined;
  const getWritableMounts = (name: string) => {
    writable ??= listWritableMounts(pod);
    return writable.get(name) ?? [];
  };
  for (const [index, volume] of (pod.spec?.volumes ?? []).entries()) {
    const path = `spec.volumes[${index}]`;
    const type = getVolumeType(volume);
    if (type === undefined) yield describeInvalid(path, '""', `unknown volume type for volume: ${volume.name ?? ""}`);
    else if (!allowed.includes(type) && !allowed.includes("*"))
      yield describeInvalid(path, quoteAsGo(type), `${type} volumes are not allowed to be used`);
    else if (type === "hostPath") yield* listHostPathOffences(policy, volume, path, getWritableMounts);
    else if (
      type === "flexVolume" &&
      isUnlisted(allowedFlexVolumes, ({ driver }) => driver === volume.flexVolume?.driver)
    )
      yield describeInvalid(
        `${path}.driver`,
        quoteAsGo(volume.flexVolume?.driver ?? ""),
        "Flexvolume driver is not allowed to be used",
      );
    else if (type === "csi" && isUnlisted(allowedCSIDrivers, ({ name }) => name === volume.csi?.driver))
      yield describeInvalid(
        `${path}.csi.driver`,
        quoteAsGo(volume.csi?.driver ?? ""),
        "Inline CSI driver is not allowed to be used",
      );
  }
}

/** Returns the type of a volume as policies name it; undefined if the type is unknown. */
const getVolumeType = (volume: Volume) =>
  isSourceless(volume)
    ? "emptyDir"
    : volumeTypes.find((type) => (Reflect.get(volume, type === "cephFS" ? "cephfs" : type) ?? null) !== null);

/** Reports whether a list isn't empty and has no element that passes the test. An empty list allows everything. */
const isUnlisted = <T>(listed: readonly T[], test: (element: T) => boolean) => listed.length > 0 && !listed.some(test);

/** Lists how a hostPath volume breaks the policy: by its path, or by a mount that isn't read-only. */
function* listHostPathOffences(
  { spec }: PodSecurityPolicyObject,
  volume: Volume,
  at: string,
  findWritable: (name: string) => string[],
): PodSecurityPolicyOffences {
  const { allowedHostPaths = [] } = spec;
  if (allowedHostPaths.length === 0) return;

  const path = volume.hostPath?.path ?? "";
  const matching = allowedHostPaths.filter(({ pathPrefix }) => isBelow(path, pathPrefix));
  if (matching.length === 0)
    return yield describeInvalid(`${at}.hostPath.pathPrefix`, quoteAsGo(path), "is not allowed to be used");
  if (matching.some(({ readOnly }) => !readOnly)) return;

  for (const mount of findWritable(volume.name))
    yield describeInvalid(`${mount}.readOnly`, "false", "must be read-only");
}

/** Returns the paths of mounts that aren't read-only, by the names of the volumes. */
const listWritableMounts = (pod: Pod) => {
  const mounts = new Map<string, string[]>();
  for (const { container, path } of listContainers(pod))
    for (const [index, { name, readOnly }] of (container.volumeMounts ?? []).entries()) {
      if (readOnly) continue;
      const paths = mounts.get(name) ?? [];
      mounts.set(name, paths);
      paths.push(`${path}.volumeMounts[${index}]`);
    }
  return mounts;
};

/** Reports whether a path is `prefix` or below it: `/var/log/a` is below `/var/log`, but not below `/var/lo`. */
const isBelow = (path: string, prefix: string) =>
  `${path.replace(/\/$/, "")}/`.startsWith(`${prefix.replace(/\/$/, "")}/`);
