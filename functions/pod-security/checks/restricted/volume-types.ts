// A pod may use only volumes of certain types, and no volumes of the type hostPath.
// Field: spec.volumes[*]. Allowed: configMap, csi, downwardAPI, emptyDir, ephemeral, image, persistentVolumeClaim,
// projected, secret, and volumes without a type.

import { isSourceless } from "postern/objects/pod";
import { hostPathVolumes } from "../baseline/host-path-volumes.ts";
import {
  chooseSingularOrPlural,
  formatQuotedNames,
  type PodSecurityCheck,
  type PodSecurityCheckFunction,
  quoteAll,
  sortUnique,
} from "../check-builders.ts";

const allowed = "configMap csi downwardAPI emptyDir ephemeral image persistentVolumeClaim projected secret".split(" ");

/** The types that a refusal names; it calls all other types "unknown". */
const forbidden = (
  "hostPath gcePersistentDisk awsElasticBlockStore gitRepo nfs iscsi glusterfs rbd flexVolume cinder " +
  "cephfs flocker fc azureFile vsphereVolume quobyte azureDisk photonPersistentDisk portworxVolume scaleIO " +
  "storageos"
).split(" ");

/** Returns which volumes have a type that the level restricted doesn't allow. */
const checkVolumes: PodSecurityCheckFunction = ({ spec }) => {
  const volumes = (spec.volumes ?? []).filter(
    (volume) => !isSourceless(volume) && !allowed.some((source) => Reflect.get(volume, source)),
  );
  if (volumes.length === 0) return undefined;
  const names = volumes.map(({ name = "" }) => name);
  const types = sortUnique(
    volumes.map((volume) => forbidden.find((source) => Reflect.get(volume, source)) ?? "unknown"),
  );
  const use = chooseSingularOrPlural(volumes.length, "uses", "use");
  return {
    reason: "restricted volume types",
    detail: `${formatQuotedNames("volume", names)} ${use} ${chooseSingularOrPlural(types.length, "restricted volume type")} ${quoteAll(types)}`,
  };
};

export const restrictedVolumes: PodSecurityCheck = {
  level: "restricted",
  since: { "1.0": checkVolumes },
  insteadOf: hostPathVolumes,
};
