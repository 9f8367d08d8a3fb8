import type { PodCertificateRequestSpec } from "postern/kubernetes/certificates/v1";
import type { Pod } from "postern/kubernetes/core/v1";
import { isMirrorPod } from "postern/objects/pod";
import type { KubernetesObject } from "postern/review";
import { buildForbidden, type KubeletOffence, type KubeletRequestContext, quoteText } from "./kubelet.ts";

/** Checks a request for a pod's certificate. Refusals omit the real UIDs: a forged review could ask for them. */
export const checkPodCertificateRequest = async (
  { spec = {} }: KubernetesObject & { spec?: Partial<PodCertificateRequestSpec> },
  context: KubeletRequestContext,
): Promise<KubeletOffence> => {
  const { node, request, settings, upstream, nodes, pods, accounts } = context;
  if (!settings.podCertificateRequest && !upstream.podCertificates)
    return "PodCertificateRequest feature gate is disabled";
  if (request.operation !== "CREATE") return `unexpected operation ${request.operation}`;
  if (request.subResource) return `unexpected subresource ${request.subResource}`;

  const { nodeName, nodeUID, podName = "", podUID, serviceAccountName = "", serviceAccountUID } = spec;
  if (nodeName !== node)
    return `PodCertificateRequest.Spec.NodeName=${quoteText(nodeName)}, which is not the requesting node ${quoteText(node)}`;
  const namespace = request.namespace ?? "";
  const buildNotFound = (what: string, called: string, name: string | undefined) =>
    buildForbidden(
      `while retrieving ${called} named in the PodCertificateRequest: ${what} ${quoteText(name)} not found`,
    );
  const podHere = quoteText(`${namespace}/${podName}`);
  const accountHere = quoteText(`${namespace}/${serviceAccountName}`);
  const ofPod = `PodCertificateRequest for pod ${podHere}`;

  const foundNode = await nodes({ name: nodeName });
  if (!foundNode) return buildNotFound("node", `node ${quoteText(nodeName)}`, nodeName);
  if (foundNode.metadata?.uid !== nodeUID)
    return buildForbidden(`${ofPod} names node UID ${quoteText(nodeUID)}, inconsistent with the running node`);

  const pod = await pods({ name: podName, namespace });
  if (!pod) return buildNotFound("pod", `pod ${podHere}`, podName);
  if (pod.metadata?.uid !== podUID)
    return buildForbidden(`${ofPod} contains pod UID (${quoteText(podUID)}) which differs from running pod`);
  if (pod.spec?.nodeName !== nodeName)
    return `pod ${podHere} is not running on node ${quoteText(nodeName)} named in the PodCertificateRequest`;
  if (isMirrorPod(pod)) return `pod ${podHere} is a mirror pod`;
  // The refusal may show the pod's ServiceAccount: a caller that knows the pod's UID can read the pod itself.
  if ((pod.spec.serviceAccountName ?? "") !== serviceAccountName)
    return `${ofPod} contains serviceAccountName (${quoteText(serviceAccountName)}) that differs from running pod (${quoteText(pod.spec.serviceAccountName)})`;

  const account = await accounts({ name: serviceAccountName, namespace });
  if (!account) return buildNotFound("serviceaccount", `service account ${accountHere}`, serviceAccountName);
  if (account.metadata?.uid !== serviceAccountUID)
    return buildForbidden(
      `${ofPod} names service account UID ${quoteText(serviceAccountUID)}, which differs from the running service account`,
    );
  if (upstream.podCertificates) return checkSigner(spec, pod, context);
};

/** Checks that the pod has a volume for certificates of the signer, or that the kubelet has a right to the signer. */
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
