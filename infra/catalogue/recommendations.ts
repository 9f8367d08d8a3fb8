// This file says which rules of Postern's catalogue to turn on in managed clusters, for docs/how-to/choose-rules.md.

const noPodGroups = "no: the feature gate for pod groups is off, so a cluster has none";

/**
 * The recommendations by rule, each with its reason. A rule without one is not needed in managed clusters: the API
 * server has the plugin on.
 */
const recommendations: Readonly<Record<string, string>> = {
  "always-pull-images": "yes, if teams share nodes: a pod may otherwise run a private image that its node has already",
  "deny-service-external-ips":
    "yes: users with the right to write Services can otherwise take over the traffic to any address",

  "allowed-registries": "if images may come only from your registries",
  "default-requests-and-limits":
    "if containers may lack requests: a LimitRange does the same, but only in its namespace",
  "default-toleration-seconds":
    "if pods should stay on unreachable nodes longer or shorter than 300 s (`replaceDefaults`)",
  "deletion-guard": "if pods must clean up before they are deleted or evicted",
  "deny-escalating-exec": "if users with the right to exec must not get to the node by privileged pods",
  "deny-exec-on-privileged": "if deny-escalating-exec refuses too much",
  "event-rate-limit": "if failing operators flood etcd with events; each event then costs a call",
  "extended-resource-toleration": "if nodes with GPUs are tainted, and their pods have no toleration of their own",
  "image-policy-webhook": "if a service of yours decides about images; it must answer for each pod",
  "initial-resources": "if containers have no requests, and Prometheus knows their usage",
  "limit-pod-hard-anti-affinity-topology": "if teams share nodes: one pod can otherwise keep others out of a zone",
  "minimum-replicas": "if one replica is too few for your workloads",
  "mutating-admission-policy": "if you keep policies of several clusters in one place, or a cluster is older than 1.36",
  "node-restriction":
    "if the provider doesn't document that its plugin is on: a stolen kubelet credential can otherwise change all nodes",
  "owner-references-permission-enforcement":
    "if tenants may write ownerReferences: a wrong reference can delete an object that the user may not delete",
  "persistent-volume-label": "if you write PersistentVolumes of EBS by hand (EKS only): they lack their zone",
  "pod-node-selector": "if teams have nodes of their own",
  "pod-resize-validator": "if a cluster older than 1.36 resizes running pods",
  "pod-security": "if namespaces without labels need a Pod Security level: you can't set the plugin's defaults",
  "pod-security-policy": "if PodSecurityPolicies must stay in force; new clusters should use pod-security",
  "pod-toleration-restriction": "if only some namespaces may use tainted nodes",
  "pod-topology-labels": "if pods read their zone in a cluster older than 1.35",
  "policy-admission": "if you use policies of kinitiras",
  "policy-override": "if you use policies of kinitiras",
  "policy-validate": "if you use policies of kinitiras",
  "resource-quota": "if a resource may be used only under a quota: you can't set the plugin's `limitedResources`",
  "security-context-deny":
    "if you depend on the plugin, which Kubernetes 1.30 removed; new clusters should use pod-security",
  "service-account": "if pods may use only secrets that their service account lists (`limitSecretReferences`)",
  "validating-admission-policy": "if you keep policies of several clusters in one place",
  "workload-quota": "if a quota covers several clusters, or must refuse workloads before their pods exist",

  "always-admit": "no: it only tests a deployment",
  "always-deny": "no: it refuses every change",
  "cluster-trust-bundle-attest": "no: before 1.37, clusters don't serve ClusterTrustBundles",
  "job-validation": noPodGroups,
  "namespace-auto-provision": "no: the API server refuses an object without its namespace before it calls a webhook",
  "namespace-exists": "no: namespace-lifecycle refuses new objects in missing namespaces",
  "node-declared-feature-validator": "no: before 1.36, nodes don't say which features they have",
  "pod-group-protection": noPodGroups,
  "pod-group-workload-exists": noPodGroups,
};

const answers = ["yes", "if", "no"];

/**
 * Returns the recommendation for a rule, and its rank for sorting: "yes" comes before "if" and "no". Returns undefined
 * for a rule of another catalogue.
 */
export const findRecommendation = (rule: string, hasPlugin: boolean): { rank: number; text: string } | undefined => {
  const recommendation = Object.hasOwn(recommendations, rule) ? recommendations[rule] : undefined;
  const text = recommendation ?? (hasPlugin ? "no: the API server does it by itself" : undefined);
  if (text === undefined) return undefined;
  return { rank: answers.findIndex((answer) => text.startsWith(answer)), text };
};
