import type { PersistentVolume, Pod, Volume } from "kubernetes-types/core/v1.d.ts";
import { aggregate, notFound } from "postern/refusals";
import type { KubernetesObject } from "postern/review";
import { type Around, type Offence, quoted } from "./kubelet.ts";

export interface TokenRequest extends KubernetesObject {
  spec?: {
    audiences?: string[];
    boundObjectRef?: { apiVersion?: string; kind?: string; name?: string; uid?: string };
  };
}

export const admitToken = async ({ spec = {} }: TokenRequest, around: Around): Promise<Offence> => {
  const { node, request, settings } = around;
  if (request.operation !== "CREATE" || request.subResource !== "token") return;
  const { apiVersion, kind, name, uid } = spec.boundObjectRef ?? {};
  if (apiVersion !== "v1" || kind !== "Pod" || !name) return "node requested token not bound to a pod";
  if (!uid) return "node requested token with a pod binding without a uid";
  const pod = await around.pods(name, request.namespace);
  if (!pod) return notFound({ group: "", resource: "pod" }, name);
  if (pod.metadata?.uid !== uid)
    return `the UID in the bound object reference (${uid}) does not match the UID in record. The object might have been deleted and then recreated`;
  if (pod.spec?.nodeName !== node) return "node requested token bound to a pod scheduled on a different node";
  if (settings.serviceAccountNodeAudienceRestriction) return admitAudience(spec.audiences ?? [], pod, around);
};

const admitAudience = async (
  [audience = "", ...more]: string[],
  pod: Pod,
  around: Around,
): Promise<string | undefined> => {
  if (more.length > 0) return "node may only request 0 or 1 audiences";
  const volumes = pod.spec?.volumes ?? [];
  const tokens = volumes.flatMap(({ projected }) => projected?.sources ?? []).map((one) => one.serviceAccountToken);
  if (tokens.some((token) => mayHear(token, audience))) return;
  const drivers = await Promise.all(volumes.map((volume) => driverHears(volume, pod, audience, around)));
  if (drivers.includes(true)) return;
  const errors = drivers.filter((one) => typeof one === "string");
  if (errors.length > 0) return `error validating audience ${quoted(audience)}: ${aggregate(errors)}`;

  const { userInfo: user, namespace = "", name = "" } = around.request;
  const verb = "request-serviceaccounts-token-audience";
  const access = { user, verb, group: "", version: "v1", resource: audience, namespace, name };
  const { allowed, evaluationError } = await around.may(access);
  if (allowed) return;
  const start = `audience ${quoted(audience)} not found in pod spec volume,`;
  return evaluationError
    ? `${start} error authorizing ${user.username} to request tokens for this audience: ${evaluationError}`
    : `${start} ${user.username} is not authorized to request tokens for this audience`;
};

const mayHear = (token: { audience?: string } | undefined, audience: string) =>
  token !== undefined && (token.audience ?? "") === audience;

/** Reports whether a volume's driver gets tokens for an audience; a string is the error that prevents an answer. */
const driverHears = async (volume: Volume, pod: Pod, audience: string, around: Around): Promise<boolean | string> => {
  const claim = volume.ephemeral?.volumeClaimTemplate
    ? `${pod.metadata?.name}-${volume.name}`
    : volume.persistentVolumeClaim?.claimName;
  const found = claim === undefined ? { driver: driverOf(volume) } : await driverOfClaim(claim, around);
  if ("error" in found) return found.error;
  if (!found.driver) return false;
  const driver = await around.drivers(found.driver);
  if (!driver) return `csidriver.storage.k8s.io ${quoted(found.driver)} not found`;
  return driver.spec?.tokenRequests?.some((token) => mayHear(token, audience)) ?? false;
};

const driverOfClaim = async (
  name: string,
  { claims, volumes, request }: Around,
): Promise<{ error: string } | { driver: string | undefined }> => {
  const claim = await claims(name, request.namespace);
  if (!claim) return { error: `persistentvolumeclaim ${quoted(name)} not found` };
  const volume = await volumes(claim.spec?.volumeName ?? "");
  return volume
    ? { driver: driverOf(volume.spec ?? {}) }
    : { error: `persistentvolume ${quoted(claim.spec?.volumeName)} not found` };
};

/** Volume types that are older than CSI are migrated to a CSI driver. */
const driverOf = (volume: Volume | NonNullable<PersistentVolume["spec"]>): string | undefined =>
  volume.csi?.driver ?? Object.entries(migrated).find(([kind]) => Reflect.get(volume, kind) != null)?.[1];

const migrated = {
  awsElasticBlockStore: "ebs.csi.aws.com",
  gcePersistentDisk: "pd.csi.storage.gke.io",
  cinder: "cinder.csi.openstack.org",
  azureDisk: "disk.csi.azure.com",
  azureFile: "file.csi.azure.com",
  vsphereVolume: "csi.vsphere.vmware.com",
  portworxVolume: "pxd.portworx.com",
};
