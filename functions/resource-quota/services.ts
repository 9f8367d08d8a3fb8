import type { Service } from "postern/kubernetes/core/v1";
import { requireQuantity } from "postern/objects/quantity";
import type { Evaluator } from "./evaluator.ts";

const countedNames = ["count/services", "services", "services.nodeports", "services.loadbalancers"];

/** Finds out what a service uses of a quota. */
export const serviceEvaluator: Evaluator<Service> = {
  selectNames: (names) => names.filter((name) => countedNames.includes(name)),
  measure: (service) =>
    new Map([
      ["count/services", requireQuantity("1")],
      ["services", requireQuantity("1")],
      ["services.loadbalancers", requireQuantity(service.spec?.type === "LoadBalancer" ? "1" : "0")],
      ["services.nodeports", requireQuantity(countNodePorts(service))],
    ]),
};

/** Returns the number of node ports that a service will have. The API server allocates them after this review. */
const countNodePorts = ({ spec: { type, ports = [], allocateLoadBalancerNodePorts } = {} }: Service): number => {
  if (type === "NodePort") return ports.length;
  if (type !== "LoadBalancer") return 0;
  return allocateLoadBalancerNodePorts === false ? ports.filter(({ nodePort }) => nodePort).length : ports.length;
};
