import { isMirror } from "postern/objects/pod";
import type { KubernetesObject } from "postern/review";
import { type Around, type Offence, plainly, quoted } from "./kubelet.ts";

export interface PodCertificateRequest extends KubernetesObject {
  spec?: {
    nodeName?: string;
    nodeUID?: string;
    podName?: string;
    podUID?: string;
    serviceAccountName?: string;
    serviceAccountUID?: string;
  };
}

/** Refusals omit the real UIDs, which upstream prints: a forged review could ask for them. */
export const admitPodCertificateRequest = async (
  { spec = {} }: PodCertificateRequest,
  { node, request, settings, nodes, pods, accounts }: Around,
): Promise<Offence> => {
  if (!settings.podCertificateRequest) return "PodCertificateRequest feature gate is disabled";
  if (request.operation !== "CREATE") return `unexpected operation ${request.operation}`;
  if (request.subResource) return `unexpected subresource ${request.subResource}`;

  const { nodeName, nodeUID, podName = "", podUID, serviceAccountName = "", serviceAccountUID } = spec;
  if (nodeName !== node)
    return `PodCertificateRequest.Spec.NodeName=${quoted(nodeName)}, which is not the requesting node ${quoted(node)}`;
  const namespace = request.namespace ?? "";
  const missing = (what: string, called: string, name: string | undefined) =>
    plainly(`while retrieving ${called} named in the PodCertificateRequest: ${what} ${quoted(name)} not found`);
  const podHere = quoted(`${namespace}/${podName}`);
  const accountHere = quoted(`${namespace}/${serviceAccountName}`);
  const ofPod = `PodCertificateRequest for pod ${podHere}`;

  const foundNode = await nodes(nodeName);
  if (!foundNode) return missing("node", `node ${quoted(nodeName)}`, nodeName);
  if (foundNode.metadata?.uid !== nodeUID)
    return plainly(`${ofPod} names node UID ${quoted(nodeUID)}, inconsistent with the running node`);

  const pod = await pods(podName, namespace);
  if (!pod) return missing("pod", `pod ${podHere}`, podName);
  if (pod.metadata?.uid !== podUID)
    return plainly(`${ofPod} contains pod UID (${quoted(podUID)}) which differs from running pod`);
  if (pod.spec?.nodeName !== nodeName)
    return `pod ${podHere} is not running on node ${quoted(nodeName)} named in the PodCertificateRequest`;
  if (isMirror(pod)) return `pod ${podHere} is a mirror pod`;
  // The refusal may name the pod's account: a caller that knows the pod's UID could read the account, too.
  if ((pod.spec.serviceAccountName ?? "") !== serviceAccountName)
    return `${ofPod} contains serviceAccountName (${quoted(serviceAccountName)}) that differs from running pod (${quoted(pod.spec.serviceAccountName)})`;

  const account = await accounts(serviceAccountName, namespace);
  if (!account) return missing("serviceaccount", `service account ${accountHere}`, serviceAccountName);
  if (account.metadata?.uid !== serviceAccountUID)
    return plainly(
      `${ofPod} names service account UID ${quoted(serviceAccountUID)}, which differs from the running service account`,
    );
};
