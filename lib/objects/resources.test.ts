import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Container } from "kubernetes-types/core/v1.d.ts";
import { formatQuantity } from "./quantity.ts";
import { addAmounts, computePodAmounts, parseAmounts, type QuantityByResource } from "./resources.ts";

const shown = (amounts: QuantityByResource) =>
  Object.fromEntries([...amounts].map(([resource, amount]) => [resource, formatQuantity(amount)]));

const container = (requests: Record<string, string>, rest: Partial<Container> = {}): Container => {
  return { name: "a", resources: { requests }, ...rest };
};
const sidecar = (requests: Record<string, string>) => container(requests, { restartPolicy: "Always" });
const requests = (spec: object) => shown(computePodAmounts({ spec: { containers: [], ...spec } }, "requests"));

describe("what a pod takes", () => {
  it("is what its containers take together", () => {
    const containers = [container({ cpu: "1", memory: "1Gi" }), container({ cpu: "500m" }), { name: "b" }];
    assert.deepEqual(requests({ containers }), { cpu: "1500m", memory: "1Gi" });
  });

  it("is what an init container takes where that is more", () => {
    const [containers, initContainers] = [
      [container({ cpu: "1", memory: "1Gi" })],
      [container({ cpu: "3" }), container({ cpu: "2", "example.com/gpu": "1" })],
    ];
    assert.deepEqual(requests({ containers, initContainers }), { cpu: "3", memory: "1Gi", "example.com/gpu": "1" });
  });

  it("has in it what stays beside the others", () => {
    const containers = [container({ cpu: "1" })];
    assert.deepEqual(requests({ containers, initContainers: [sidecar({ cpu: "1" })] }), { cpu: "2" });
    assert.deepEqual(
      requests({ containers, initContainers: [sidecar({ cpu: "1" }), container({ cpu: "1500m" })] }),
      { cpu: "2500m" },
      "while it starts",
    );
    assert.deepEqual(
      requests({ containers, initContainers: [container({ cpu: "1500m" }), sidecar({ cpu: "1" })] }),
      { cpu: "2" },
      "but not before it runs itself",
    );
    const two = [sidecar({ cpu: "1" }), sidecar({ memory: "1Gi" }), container({ cpu: "1", memory: "2Gi" })];
    assert.deepEqual(requests({ containers: [], initContainers: two }), { cpu: "2", memory: "3Gi" });
  });

  it("is what it sets for all of them, of resources that can be shared", () => {
    const resources = { requests: { cpu: "3", "hugepages-2Mi": "4Mi", "example.com/gpu": "2" } };
    const containers = [container({ cpu: "1", memory: "1Gi", "example.com/gpu": "1" })];
    assert.deepEqual(requests({ containers, resources }), {
      ...{ cpu: "3", memory: "1Gi", "example.com/gpu": "1", "hugepages-2Mi": "4Mi" },
    });
  });

  it("is nothing where nothing is said", () => {
    assert.deepEqual(shown(computePodAmounts({}, "limits")), {});
    assert.deepEqual(requests({ containers: null }), {});
  });

  it("can be found by any resource's name", () => {
    const odd = addAmounts(parseAmounts(JSON.parse('{ "__proto__": "1", "constructor": "2" }')), parseAmounts({}));
    assert.deepEqual([...odd.keys()], ["__proto__", "constructor"]);
  });
});
