import type { Node, Pod } from "postern/kubernetes/core/v1";
import { get } from "postern/needs";
import {
  compareQuantities,
  type Quantity,
  requireQuantity,
  roundToUnits,
  roundUpToThousandths,
  zeroQuantity,
} from "postern/objects/quantity";
import { addAmounts, computePodAmounts, parseAmounts } from "postern/objects/resources";
import { forbidden } from "postern/refusals";
import { rule } from "postern/rule";

export default rule({
  summary: "Refuses to resize a running pod beyond what its node can allocate.",
  order: 35,
  upstreamPlugin: {
    plugin: "PodResizeValidator",
    worthwhile:
      "From Kubernetes 1.36 on, the API server's plugin PodResizeValidator does the same by default. The rule is for older clusters, and for clusters that turned this plugin off.",
  },
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods/resize"], operations: ["UPDATE"] }],
  matchConditions: {
    "is-on-a-node": `object.?spec.?nodeName.orValue("") != ""`,
    "changes-its-spec": "object.?metadata.?generation.orValue(0) != oldObject.?metadata.?generation.orValue(0)",
  },
  needs: { node: get("nodes") },

  async validate(pod: Pod, { request, oldObject, node }) {
    const name = pod.spec?.nodeName;
    if (!name || !oldObject || getGeneration(pod) === getGeneration(oldObject)) return;

    const refuseRequest = (text: string, reason?: string) => {
      const status = forbidden(request, text);
      return { refuse: reason ? { ...status, details: { ...status.details, causes: [{ reason }] } } : status };
    };
    const assigned = await node({ name });
    if (!assigned) return refuseRequest(`node "${name}" not found`);

    const system = assigned.metadata?.labels?.["kubernetes.io/os"] ?? "linux";
    if (system !== "linux")
      return refuseRequest(
        `pod resize is only supported on linux nodes, node "${name}" is "${system}"`,
        "UnsupportedPlatform",
      );

    const shortages = listShortages(pod, assigned);
    if (shortages.length > 0)
      return refuseRequest(`node didn't have enough allocatable resources: ${shortages.join("; ")}`, "NodeCapacity");
  },

  async suggest(pod: Pod, { node }) {
    const name = pod.spec?.nodeName ?? "";
    const assigned = await node({ name });
    if (!assigned || listShortages(pod, assigned).length === 0) return;
    const { cpu, memory } = assigned.status?.allocatable ?? {};
    // If the node has no cpu or no memory, no request would fit, so nothing is suggested.
    if (!cpu || !memory) return;
    return `request at most ${cpu} of cpu and ${memory} of memory in all, which is what node ${JSON.stringify(name)} has for pods`;
  },
});

const getGeneration = ({ metadata }: Pod) => metadata?.generation ?? 0;

/** Lists the resources of which a pod requests more than its node can allocate, in upstream's words. */
const listShortages = (pod: Pod, { status }: Node): string[] => {
  const requests = addAmounts(computePodAmounts(pod, "requests"), parseAmounts(pod.spec?.overhead));
  const findShortage = (resource: string, measure: (amount: Quantity) => bigint) => {
    const requested = requests.get(resource) ?? zeroQuantity;
    const allocatable = requireQuantity(status?.allocatable?.[resource] ?? "0");
    return compareQuantities(requested, allocatable) > 0
      ? [`${resource}, requested: ${measure(requested)}, allocatable: ${measure(allocatable)}`]
      : [];
  };
  return [...findShortage("cpu", roundUpToThousandths), ...findShortage("memory", roundToUnits)];
};
