import type { Pod, Volume } from "postern/kubernetes/core/v1";
import { isSourceless, listContainers } from "postern/objects/pod";
import { listSecrets } from "postern/objects/secret";
import { quoteText } from "./kubelet.ts";

/** Returns the resource of the first API object that a pod references (`what`), or an error (`unknown`). */
export const findFirstApiObjectReference = (pod: Pod): { what?: string; unknown?: string } | undefined => {
  const { serviceAccountName, volumes = [], resourceClaims } = pod.spec ?? {};
  if (serviceAccountName) return { what: "serviceaccounts" };
  if (listSecrets(pod).length > 0) return { what: "secrets" };
  if (listConfigMaps(pod).length > 0) return { what: "configmaps" };
  if ((resourceClaims?.length ?? 0) > 0) return { what: "resourceclaims" };
  for (const volume of volumes) {
    const found = findVolumeReference(volume);
    if (found) return found;
  }
};

/** Does the same as findFirstApiObjectReference for clusters before 1.34, in which upstream knew fewer references. */
export const findReferenceBefore134 = (pod: Pod): { what: string } | undefined => {
  const { serviceAccountName, volumes = [], resourceClaims = [] } = pod.spec ?? {};
  const sources = volumes.flatMap(({ projected }) => projected?.sources ?? []);
  if (serviceAccountName) return { what: "a service account" };
  if (listSecrets(pod).length > 0) return { what: "secrets" };
  if (listConfigMaps(pod).length > 0) return { what: "configmaps" };
  if (sources.some(({ clusterTrustBundle }) => clusterTrustBundle)) return { what: "clustertrustbundles" };
  if (volumes.some(({ persistentVolumeClaim }) => persistentVolumeClaim)) return { what: "persistentvolumeclaims" };
  if (resourceClaims.length > 0) return { what: "resourceclaims" };
};

/** Lists the names of the ConfigMaps that a pod references. */
const listConfigMaps = (pod: Pod) =>
  [
    ...listContainers(pod).flatMap(({ container: { env, envFrom } }) => [
      ...(envFrom ?? []).map(({ configMapRef }) => configMapRef?.name),
      ...(env ?? []).map(({ valueFrom }) => valueFrom?.configMapKeyRef?.name),
    ]),
    ...(pod.spec?.volumes ?? []).flatMap(({ configMap, projected }) => [
      configMap?.name,
      ...(projected?.sources ?? []).map((source) => source.configMap?.name),
    ]),
  ].filter(Boolean);

/** Returns what a volume references, such as "secrets (via secret volumes)" (`what`), or an error (`unknown`). */
const findVolumeReference = (volume: Volume) => {
  const has = (kind: string) => Reflect.get(volume, kind) != null;
  if (isSourceless(volume) || typesWithoutReference.some(has)) return;
  const kind = Object.keys(references).find(has);
  if (kind) return { what: references[kind] ?? "" };
  if (!volume.projected) return { unknown: `unknown volume type for volume  ${quoteText(volume.name)}` };
  for (const source of volume.projected.sources ?? []) {
    const found = Object.keys(projections).find((kind) => Reflect.get(source, kind) != null);
    if (found) return { what: projections[found] ?? "" };
    if (!source.downwardAPI) return { unknown: `unknown source for projected volume ${quoteText(volume.name)}` };
  }
};

/** The types of volumes that reference no API object. */
const typesWithoutReference = (
  "awsElasticBlockStore azureDisk cephfs cinder downwardAPI emptyDir fc flexVolume flocker gcePersistentDisk " +
  "gitRepo hostPath image iscsi nfs photonPersistentDisk portworxVolume quobyte rbd scaleIO storageos " +
  "vsphereVolume"
).split(" ");

/** What volumes reference, in upstream's words, by the type of the volume. */
const references: Record<string, string> = {
  configMap: "configmaps (via configmap volumes)",
  secret: "secrets (via secret volumes)",
  csi: "csidrivers (via CSI volumes)",
  glusterfs: "endpoints (via glusterFS volumes)",
  persistentVolumeClaim: "persistentvolumeclaims",
  ephemeral: "persistentvolumeclaims (via ephemeral volumes)",
  azureFile: "secrets (via azureFile volumes)",
};

/** What the sources of projected volumes reference, in upstream's words, by the type of the source. */
const projections: Record<string, string> = {
  configMap: "configmaps (via projected volumes)",
  secret: "secrets (via projected volumes)",
  serviceAccountToken: "serviceaccounts (via projected volumes)",
  clusterTrustBundle: "clustertrustbundles",
  podCertificate: "podcertificates",
};
