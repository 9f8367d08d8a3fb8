import type { Node } from "postern/kubernetes/core/v1";
import { get } from "postern/needs";
import type { AdmissionRequest, KubernetesObject } from "postern/review";
import { rule } from "postern/rule";

interface PodOrBinding extends KubernetesObject {
  target?: { kind?: string; name?: string };
  spec?: { nodeName?: string };
}

const copiedLabels = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

export default rule({
  summary: "Copies the zone and region labels of a node to its pods.",
  order: 31,
  upstreamPlugin: {
    plugin: "PodTopologyLabels",
    worthwhile:
      "From Kubernetes 1.35 on, the API server's plugin PodTopologyLabels does the same by default. The rule is for clusters that turned this plugin off.",
  },
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods", "pods/binding"], operations: ["CREATE"] }],
  matchConditions: {
    "has-a-node": `request.?subResource.orValue("") == "binding"
      ? object.?target.?kind.orValue("") == "Node" : object.?spec.?nodeName.orValue("") != ""`,
  },
  needs: {
    // A cached Node is used only if it has both labels, because a zone and a region don't change. Otherwise the Node is
    // read again, because a new Node lacks the labels until a controller sets them.
    remembered: get("nodes", { maxAge: 60 }),
    current: get("nodes", { maxAge: 0 }),
  },
  // The timeout is short, because the scheduler waits for the rule.
  timeoutSeconds: 2,

  async mutate(object: PodOrBinding, { request, remembered, current }) {
    const name = getNodeName(object, request);
    if (!name) return;
    const cached = pickCopiedLabels(await remembered({ name }));
    const labels = cached.length === copiedLabels.length ? cached : pickCopiedLabels(await current({ name }));
    if (labels.length === 0) return;

    // The object is a Pod or a Binding. The API server copies the labels of a Binding to the pod.
    object.metadata = { ...object.metadata, labels: { ...object.metadata?.labels, ...Object.fromEntries(labels) } };
  },
});

const pickCopiedLabels = (node: Node | undefined) =>
  Object.entries(node?.metadata?.labels ?? {}).filter(([key]) => copiedLabels.includes(key));

const getNodeName = ({ target, spec }: PodOrBinding, { subResource }: AdmissionRequest) => {
  if (subResource !== "binding") return spec?.nodeName;
  return target?.kind === "Node" ? target.name : undefined;
};
