import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Container } from "../kubernetes/core/v1.ts";
import { formatQuantity } from "./quantity.ts";
import { addAmounts, computePodAmounts, parseAmounts, type QuantityByResource } from "./resources.ts";

const formatAmounts = (amounts: QuantityByResource) =>
  Object.fromEntries([...amounts].map(([resource, amount]) => [resource, formatQuantity(amount)]));

const buildContainer = (requests: Record<string, string>, rest: Partial<Container> = {}): Container => {
  return { name: "a", resources: { requests }, ...rest };
};
const buildSidecar = (requests: Record<string, string>) => buildContainer(requests, { restartPolicy: "Always" });
const computeRequests = (spec: object) =>
  formatAmounts(computePodAmounts({ spec: { containers: [], ...spec } }, "requests"));

describe("the resources of a pod", () => {
  it("the resources of a pod are the sum of its containers", () => {
    const containers = [buildContainer({ cpu: "1", memory: "1Gi" }), buildContainer({ cpu: "500m" }), { name: "b" }];
    assert.deepEqual(computeRequests({ containers }), { cpu: "1500m", memory: "1Gi" });
  });

  it("a pod needs the sum of its containers or its largest init container: the larger for each resource", () => {
    const [containers, initContainers] = [
      [buildContainer({ cpu: "1", memory: "1Gi" })],
      [buildContainer({ cpu: "3" }), buildContainer({ cpu: "2", "example.com/gpu": "1" })],
    ];
    assert.deepEqual(computeRequests({ containers, initContainers }), {
      cpu: "3",
      memory: "1Gi",
      "example.com/gpu": "1",
    });
  });

  it("the resources of a pod include sidecars beside containers and beside later init containers", () => {
    const containers = [buildContainer({ cpu: "1" })];
    assert.deepEqual(computeRequests({ containers, initContainers: [buildSidecar({ cpu: "1" })] }), { cpu: "2" });
    assert.deepEqual(
      computeRequests({ containers, initContainers: [buildSidecar({ cpu: "1" }), buildContainer({ cpu: "1500m" })] }),
      { cpu: "2500m" },
      "an init container runs beside an earlier sidecar",
    );
    assert.deepEqual(
      computeRequests({ containers, initContainers: [buildContainer({ cpu: "1500m" }), buildSidecar({ cpu: "1" })] }),
      { cpu: "2" },
      "an init container ends before a later sidecar starts",
    );
    const initContainers = [
      buildSidecar({ cpu: "1" }),
      buildSidecar({ memory: "1Gi" }),
      buildContainer({ cpu: "1", memory: "2Gi" }),
    ];
    assert.deepEqual(computeRequests({ containers: [], initContainers: initContainers }), { cpu: "2", memory: "3Gi" });
  });

  it("a pod's own `resources` replace the sum of its containers for cpu, memory and hugepages", () => {
    const resources = { requests: { cpu: "3", "hugepages-2Mi": "4Mi", "example.com/gpu": "2" } };
    const containers = [buildContainer({ cpu: "1", memory: "1Gi", "example.com/gpu": "1" })];
    assert.deepEqual(computeRequests({ containers, resources }), {
      cpu: "3",
      memory: "1Gi",
      "example.com/gpu": "1",
      "hugepages-2Mi": "4Mi",
    });
  });

  it("a pod has no resources if no container has resources", () => {
    assert.deepEqual(formatAmounts(computePodAmounts({}, "limits")), {});
    assert.deepEqual(computeRequests({ containers: null }), {});
  });

  it("the resources of a pod may have names such as __proto__ and constructor", () => {
    const amounts = addAmounts(parseAmounts(JSON.parse('{ "__proto__": "1", "constructor": "2" }')), parseAmounts({}));
    assert.deepEqual([...amounts.keys()], ["__proto__", "constructor"]);
  });
});
