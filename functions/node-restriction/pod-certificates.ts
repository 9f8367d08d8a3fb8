import type { PodCertificateRequestSpec } from "postern/kubernetes/certificates/v1";
import type { Pod } from "postern/kubernetes/core/v1";
import { isMirrorPod } from "postern/objects/pod";
import type { KubernetesObject } from "postern/review";
import { buildForbidden, type KubeletOffence, type KubeletRequestContext, quoteText } from "./kubelet.ts";

/**
 * Checks a request for a pod's certificate. As in upstream, some messages begin with the object's name, and others
 * (buildForbidden) don't. They omit the real UIDs: the sender of a forged review may not learn them.
 */
export const checkPodCertificateRequest = async (
  { spec = {} }: KubernetesObject & { spec?: Partial<PodCertificateRequestSpec> },
  context: KubeletRequestContext,
): Promise<KubeletOffence> => {
  const { node, request, settings, upstream, nodes, pods, accounts } = context;
  // From Kubernetes 1.37 on, `upstream.checksCertificateSigner` is true: the feature gate no longer exists.
  if (!settings.podCertificateRequest && !upstream.checksCertificateSigner)
    return "PodCertificateRequest feature gate is disabled";
  if (request.operation !== "CREATE") return `unexpected operation ${request.operation}`;
  if (request.subResource) return `unexpected subresource ${request.subResource}`;

  const { nodeName, nodeUID, podName = "", podUID, serviceAccountName = "", serviceAccountUID } = spec;
  if (nodeName !== node)
    return `PodCertificateRequest.Spec.NodeName=${quoteText(nodeName)}, which is not the requesting node ${quoteText(node)}`;
  const namespace = request.namespace ?? "";
  const buildNotFound = (kind: string, description: string, name: string | undefined) =>
    buildForbidden(
      `while retrieving ${description} named in the PodCertificateRequest: ${kind} ${quoteText(name)} not found`,
    );
  const quotedPod = quoteText(`${namespace}/${podName}`);
  const quotedAccount = quoteText(`${namespace}/${serviceAccountName}`);
  const requestForPod = `PodCertificateRequest for pod ${quotedPod}`;

  const foundNode = await nodes({ name: nodeName });
  if (!foundNode) return buildNotFound("node", `node ${quoteText(nodeName)}`, nodeName);
  if (foundNode.metadata?.uid !== nodeUID)
    return buildForbidden(`${requestForPod} names node UID ${quoteText(nodeUID)}, inconsistent with the running node`);

  const pod = await pods({ name: podName, namespace });
  if (!pod) return buildNotFound("pod", `pod ${quotedPod}`, podName);
  if (pod.metadata?.uid !== podUID)
    return buildForbidden(`${requestForPod} contains pod UID (${quoteText(podUID)}) which differs from running pod`);
  if (pod.spec?.nodeName !== nodeName)
    return `pod ${quotedPod} is not running on node ${quoteText(nodeName)} named in the PodCertificateRequest`;
  if (isMirrorPod(pod)) return `pod ${quotedPod} is a mirror pod`;
  // The refusal may show the pod's ServiceAccount: a caller that knows the pod's UID can read the pod itself.
  if ((pod.spec.serviceAccountName ?? "") !== serviceAccountName)
    return `${requestForPod} contains serviceAccountName (${quoteText(serviceAccountName)}) that differs from running pod (${quoteText(pod.spec.serviceAccountName)})`;

  const account = await accounts({ name: serviceAccountName, namespace });
  if (!account) return buildNotFound("serviceaccount", `service account ${quotedAccount}`, serviceAccountName);
  if (account.metadata?.uid !== serviceAccountUID)
    return buildForbidden(
      `${requestForPod} names service account UID ${quoteText(serviceAccountUID)}, which differs from the running service account`,
    );
  if (upstream.checksCertificateSigner) return checkSigner(spec, pod, context);
};

/** Checks that a volume of the pod names the signer, or that the kubelet may request its certificates. */
const checkSigner = async (
  { signerName = "", serviceAccountName: name = "" }: Partial<PodCertificateRequestSpec>,
  pod: Pod,
  { request, may }: KubeletRequestContext,
): Promise<KubeletOffence> => {
  const sources = (pod.spec?.volumes ?? []).flatMap(({ projected }) => projected?.sources ?? []);
  if (sources.some(({ podCertificate }) => podCertificate?.signerName === signerName)) return;
  const { userInfo: user, namespace = "" } = request;
  const { group, version } = request.resource;
  const verb = "request-serviceaccounts-podcertificate-signer";
  const resource = signerName.replaceAll("/", ":");
  const { allowed, evaluationError } = await may({ user, verb, group, version, resource, namespace, name });
  if (allowed) return;
  const signer = quoteText(signerName);
  return evaluationError
    ? `error authorizing ${user.username} to request podcertificaterequests for signer ${signer}: ${evaluationError}`
    : `pod ${quoteText(`${namespace}/${pod.metadata?.name}`)} does not mount a podCertificate projected volume for signer ${signer}`;
};
