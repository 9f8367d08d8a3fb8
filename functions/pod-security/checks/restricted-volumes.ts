import { type ImageVolume, isSourceless } from "postern/objects/pod";
import type { Check, Judge } from "./check.ts";
import { hostPathVolumes } from "./host-path-volumes.ts";
import { listed, plural, quoted, sorted } from "./wording.ts";

type Source = Exclude<keyof ImageVolume, "name">;

const allowed: readonly Source[] = [
  ...(["configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim"] as const),
  ...(["projected", "secret"] as const),
];

/** The others that there are. */
const forbidden: readonly Source[] = [
  ...(["hostPath", "gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "nfs", "iscsi", "glusterfs"] as const),
  ...(["rbd", "flexVolume", "cinder", "cephfs", "flocker", "fc", "azureFile", "vsphereVolume", "quobyte"] as const),
  ...(["azureDisk", "photonPersistentDisk", "portworxVolume", "scaleIO", "storageos"] as const),
];

const judge: Judge = ({ spec }) => {
  const all: ImageVolume[] = spec.volumes ?? [];
  const volumes = all.filter((volume) => !isSourceless(volume) && !allowed.some((source) => volume[source]));
  if (volumes.length === 0) return undefined;

  const names = volumes.map(({ name = "" }) => name);
  const types = sorted(volumes.map((volume) => forbidden.find((source) => volume[source]) ?? "unknown"));
  const use = plural(volumes.length, "uses", "use");
  return {
    reason: "restricted volume types",
    detail: `${listed("volume", names)} ${use} ${plural(types.length, "restricted volume type")} ${quoted(types)}`,
  };
};

export const restrictedVolumes: Check = { level: "restricted", since: { "1.0": judge }, insteadOf: hostPathVolumes };
