import type { RecordedCapabilityAnswers } from "#lib/recording/recorded-answers.ts";

type Objects = NonNullable<RecordedCapabilityAnswers["objects"]>;

const createNamespace = (name: string) => {
  const labels = { "kubernetes.io/metadata.name": name };
  return { apiVersion: "v1", kind: "Namespace", metadata: { name, labels }, status: { phase: "Active" } };
};

const createPriorityClass = (name: string, value: number, description: string) => ({
  apiVersion: "scheduling.k8s.io/v1",
  kind: "PriorityClass",
  metadata: { name },
  value,
  description,
  preemptionPolicy: "PreemptLowerPriority",
});

/**
 * Objects that every API server creates and that a rule may read. API servers also create a Service, FlowSchemas and
 * RBAC roles. These aren't in the list, because no rule reads them.
 */
export const apiServerOwnObjects: Objects = [
  ...["default", "kube-node-lease", "kube-public", "kube-system"].map(createNamespace),
  createPriorityClass(
    "system-cluster-critical",
    2_000_000_000,
    "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
  ),
  createPriorityClass(
    "system-node-critical",
    2_000_001_000,
    "Used for system critical pods that must not be moved from their current node.",
  ),
];

/** Returns the objects that controllers create in each new namespace. Only clusters know their content. */
export const listInitialNamespaceObjects = (namespace: string): Objects => [
  { apiVersion: "v1", kind: "ServiceAccount", metadata: { name: "default", namespace } },
  { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "kube-root-ca.crt", namespace } },
];
