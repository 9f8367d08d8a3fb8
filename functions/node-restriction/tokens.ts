import type { PersistentVolume, Pod, Volume } from "postern/kubernetes/core/v1";
import { joinErrors, notFound } from "postern/refusals";
import type { KubernetesObject } from "postern/review";
import { type KubeletOffence, type KubeletRequestContext, quoteText } from "./kubelet.ts";

export interface TokenRequest extends KubernetesObject {
  spec?: {
    audiences?: string[];
    boundObjectRef?: { apiVersion?: string; kind?: string; name?: string; uid?: string };
  };
}

/** Returns why a kubelet may not request this service account token; undefined if it may. */
export const checkTokenRequest = async (
  { spec = {} }: TokenRequest,
  context: KubeletRequestContext,
): Promise<KubeletOffence> => {
  const { node, request, settings } = context;
  if (request.operation !== "CREATE" || request.subResource !== "token") return;
  const { apiVersion, kind, name, uid } = spec.boundObjectRef ?? {};
  if (apiVersion !== "v1" || kind !== "Pod" || !name) return "node requested token not bound to a pod";
  if (!uid) return "node requested token with a pod binding without a uid";
  const pod = await context.pods({ name, namespace: request.namespace });
  if (!pod) return notFound({ group: "", resource: "pod" }, name);
  if (pod.metadata?.uid !== uid)
    return `the UID in the bound object reference (${uid}) does not match the UID in record. The object might have been deleted and then recreated`;
  if (pod.spec?.nodeName !== node) return "node requested token bound to a pod scheduled on a different node";
  if (settings.serviceAccountNodeAudienceRestriction) return checkAudience(spec.audiences ?? [], pod, context);
};

/** Returns why a kubelet may not request a token for this audience; undefined if it may. */
const checkAudience = async (
  [audience = "", ...more]: string[],
  pod: Pod,
  context: KubeletRequestContext,
): Promise<string | undefined> => {
  if (more.length > 0) return "node may only request 0 or 1 audiences";
  const volumes = pod.spec?.volumes ?? [];
  const tokens = volumes
    .flatMap(({ projected }) => projected?.sources ?? [])
    .map((source) => source.serviceAccountToken);
  if (tokens.some((token) => isForAudience(token, audience))) return;
  // For each volume: true, false, or a text that says why the answer isn't known.
  const answers = await Promise.all(volumes.map((volume) => usesAudience(volume, pod, audience, context)));
  if (answers.includes(true)) return;
  const errors = answers.filter((answer) => typeof answer === "string");
  if (errors.length > 0) return `error validating audience ${quoteText(audience)}: ${joinErrors(errors)}`;

  const { userInfo: user, namespace = "", name = "" } = context.request;
  const verb = "request-serviceaccounts-token-audience";
  const access = { user, verb, group: "", version: "v1", resource: audience, namespace, name };
  const { allowed, evaluationError } = await context.may(access);
  return allowed ? undefined : context.upstream.describeAudience(user.username, quoteText(audience), evaluationError);
};

const isForAudience = (token: { audience?: string } | undefined, audience: string) =>
  token !== undefined && (token.audience ?? "") === audience;

/** Reports whether the CSI driver of a volume gets tokens for an audience. Returns a text if this isn't known. */
const usesAudience = async (
  volume: Volume,
  pod: Pod,
  audience: string,
  context: KubeletRequestContext,
): Promise<boolean | string> => {
  const claim = volume.ephemeral?.volumeClaimTemplate
    ? `${pod.metadata?.name}-${volume.name}`
    : volume.persistentVolumeClaim?.claimName;
  const found = claim === undefined ? { driver: getDriver(volume) } : await findClaimDriver(claim, context);
  if ("error" in found) return found.error;
  if (!found.driver) return false;
  const driver = await context.drivers({ name: found.driver });
  if (!driver) return `csidriver.storage.k8s.io ${quoteText(found.driver)} not found`;
  return driver.spec?.tokenRequests?.some((token) => isForAudience(token, audience)) ?? false;
};

/** Returns the CSI driver of the volume that a claim is bound to; an error if the claim or volume is missing. */
const findClaimDriver = async (
  name: string,
  { claims, volumes, request }: KubeletRequestContext,
): Promise<{ error: string } | { driver: string | undefined }> => {
  const claim = await claims({ name, namespace: request.namespace });
  if (!claim) return { error: `persistentvolumeclaim ${quoteText(name)} not found` };
  const volume = await volumes({ name: claim.spec?.volumeName ?? "" });
  return volume
    ? { driver: getDriver(volume.spec ?? {}) }
    : { error: `persistentvolume ${quoteText(claim.spec?.volumeName)} not found` };
};

/** Returns a volume's CSI driver. Kubernetes also handles some older volume types with a CSI driver (`migrated`). */
const getDriver = (volume: Volume | NonNullable<PersistentVolume["spec"]>): string | undefined =>
  volume.csi?.driver ?? Object.entries(migrated).find(([kind]) => Reflect.get(volume, kind) != null)?.[1];

/** The CSI drivers that handle older volume types, by the field of the volume. */
const migrated = {
  awsElasticBlockStore: "ebs.csi.aws.com",
  gcePersistentDisk: "pd.csi.storage.gke.io",
  cinder: "cinder.csi.openstack.org",
  azureDisk: "disk.csi.azure.com",
  azureFile: "file.csi.azure.com",
  vsphereVolume: "csi.vsphere.vmware.com",
  portworxVolume: "pxd.portworx.com",
};
