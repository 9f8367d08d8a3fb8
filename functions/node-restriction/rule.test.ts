import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { AdmissionRequest, Operation } from "postern/review";
import { evaluateMatchCondition, openRule, readRows } from "postern/test";
import { isKubeletCondition, skipOrdinaryHeartbeatConditions } from "./webhook-entries.ts";

const rows = readRows<Record<string, string[]>>(import.meta.filename);

const { decide, entries } = await openRule(import.meta.dirname);

// Requests without a name can't be cases: an API server omits the name only if a collection is deleted, and never for
// evictions.

const pods = { group: "", version: "v1", resource: "pods" };
const buildRequest = (operation: Operation, overrides: Partial<AdmissionRequest>): AdmissionRequest => ({
  uid: "1",
  operation,
  namespace: "default",
  resource: pods,
  kind: { group: "", version: "v1", kind: "Pod" },
  userInfo: { username: "system:node:n1", groups: ["system:nodes"] },
  ...overrides,
});
const decideStatus = async (request: AdmissionRequest) => (await decide("mutate", request)).outcome.status;

describe("node-restriction", () => {
  it("node-restriction answers 404 to the deletion of a collection, so that no pod is deleted", async () => {
    const oldObject = { metadata: { name: "a" }, spec: { nodeName: "n1" } };
    const status = await decideStatus(buildRequest("DELETE", { oldObject }));
    assert.deepEqual(status, { code: 404, reason: "NotFound", message: 'pod "" not found', details: { kind: "pod" } });
  });

  it("node-restriction refuses an eviction without a name", async () => {
    const status = await decideStatus(buildRequest("CREATE", { subResource: "eviction", object: { metadata: {} } }));
    assert.equal(status?.message, 'pods "Unknown" is forbidden: could not determine pod from request data');
  });

  it("node-restriction is not called for ordinary heartbeats", () => {
    const isCalled = (request: AdmissionRequest) =>
      Object.values({ ...isKubeletCondition, ...skipOrdinaryHeartbeatConditions }).every((expression) =>
        evaluateMatchCondition(expression, request),
      );
    const leases = { group: "coordination.k8s.io", version: "v1", resource: "leases" };
    const lease = { metadata: { name: "n1" }, spec: { holderIdentity: "n1" } };
    const leaseRequest = { resource: leases, namespace: "kube-node-lease", name: "n1", object: lease };
    const node = {
      metadata: { name: "n1", labels: { a: "b" } },
      spec: { taints: [{ key: "t", effect: "NoSchedule" }] },
    };
    const nodeRequest = {
      name: "n1",
      resource: { ...pods, resource: "nodes" },
      subResource: "status",
      oldObject: node,
    };
    const pod = { metadata: { name: "a", labels: { a: "b" } }, spec: { nodeName: "n1" } };
    const podRequest = { name: "a", subResource: "status", oldObject: pod };
    const running = { phase: "Running" };
    for (const heartbeat of [
      buildRequest("CREATE", leaseRequest),
      buildRequest("UPDATE", { ...leaseRequest, oldObject: lease }),
      buildRequest("UPDATE", { ...nodeRequest, object: { ...node, status: running } }),
      buildRequest("UPDATE", { ...podRequest, object: { ...pod, status: running } }),
    ]) {
      assert.equal(isCalled(heartbeat), false, JSON.stringify(heartbeat));
      const otherNode = { username: "system:node:n2", groups: ["system:nodes"] };
      assert.equal(isCalled({ ...heartbeat, userInfo: otherNode }), true, "by the kubelet of another node");
      assert.equal(isCalled({ ...heartbeat, userInfo: { username: "jane" } }), false, "by another user");
    }
  });

  it("node-restriction ignores the fields of a claim that a kubelet may change, such as managedFields", async () => {
    const buildClaim = (depth: number, phase: string) => {
      const fieldsV1 = JSON.parse(`${'{"f:a":'.repeat(depth)}{}${"}".repeat(depth)}`);
      return { metadata: { name: "a", managedFields: [{ fieldsV1 }] }, spec: {}, status: { phase } };
    };
    const ofClaim = { resource: { ...pods, resource: "persistentvolumeclaims" }, subResource: "status", name: "a" };
    const decideMessage = async (phase: string) => {
      const [object, oldObject] = [buildClaim(10_000, phase), buildClaim(9_999, "Bound")];
      return (await decideStatus(buildRequest("UPDATE", { ...ofClaim, object, oldObject })))?.message;
    };
    assert.equal(await decideMessage("Bound"), undefined);
    assert.match(String(await decideMessage("Lost")), /: status\.phase$/);
  });

  it("node-restriction compares amounts of claims for resources of the node by value", async () => {
    const buildPod = (quantity: string) => {
      const claim = { resourceClaimName: "c", mapping: [{ name: "memory", quantity }] };
      const status = { nodeAllocatableResourceClaimStatuses: [claim] };
      return { metadata: { name: "a" }, spec: { nodeName: "n1" }, status };
    };
    const decideMessage = async (quantity: string) => {
      const [object, oldObject] = [buildPod(quantity), buildPod("1Gi")];
      return (await decideStatus(buildRequest("UPDATE", { subResource: "status", object, oldObject })))?.message;
    };
    assert.equal(await decideMessage("1073741824"), undefined);
    assert.match(String(await decideMessage("2Gi")), / cannot update node allocatable resource claim statuses$/);
  });

  it("node-restriction compares labels with keys such as __proto__ and constructor like other labels", async () => {
    const buildNode = (labels: object) => ({ metadata: { name: "n1", labels } });
    const nodes = { name: "n1", resource: { ...pods, resource: "nodes" } };
    const labels = JSON.parse('{ "__proto__": "a", "constructor": "b", "toString": "c", "/": "d", "k8s.io/": "e" }');
    const status = await decideStatus(
      buildRequest("UPDATE", { ...nodes, object: buildNode(labels), oldObject: buildNode({}) }),
    );
    assert.equal(status?.message, 'nodes "n1" is forbidden: is not allowed to modify labels: k8s.io/');
    const object = buildNode(JSON.parse('{ "__proto__": "a", "k8s.io/constructor": "b" }'));
    assert.equal(
      await decideStatus(buildRequest("UPDATE", { ...nodes, object, oldObject: structuredClone(object) })),
      undefined,
    );
  });
});

describe("the webhook entries of node-restriction", () => {
  const listFailurePolicies = (config: object, { harden }: { harden: boolean }) =>
    entries(config, harden).map(({ name, failurePolicy, namespaceSelector }) => {
      const exempt = namespaceSelector?.matchExpressions?.flatMap(({ values = [] }) => values) ?? [];
      return [name.split(".")[0], failurePolicy, ...exempt].join(" ");
    });

  it('hardened entries fail closed, and only the entry "others" exempts kube-system and kube-node-lease', () =>
    assert.deepEqual(listFailurePolicies({}, { harden: true }), [
      "heartbeats Fail",
      "pods Fail",
      "others Fail kube-system kube-node-lease",
    ]));
  it("hardened entries fail closed in all namespaces if the list of exempt namespaces is empty", () =>
    assert.deepEqual(listFailurePolicies({ exempt: { namespaces: [] } }, { harden: true }), [
      "heartbeats Fail",
      "pods Fail",
      "others Fail",
    ]));
  it("the webhook entries of node-restriction fail open if not hardened", () =>
    assert.deepEqual(listFailurePolicies({}, { harden: false }), [
      "heartbeats Ignore",
      "pods Ignore",
      "others Ignore",
    ]));

  const selectEntries = (operation: Operation, path: string) => {
    // For the API server, `pods/*` matches `pods`, too.
    const names = [path, `${path.split("/")[0]}/*`];
    const hardenedEntries = entries({}, true);
    return hardenedEntries.filter(({ rules }) =>
      rules.some(
        ({ operations, resources }) => operations.includes(operation) && names.some((name) => resources.includes(name)),
      ),
    );
  };
  for (const [entry, requests] of Object.entries(rows))
    for (const write of requests)
      it(`call only ${entry} for ${write} by a kubelet`, () => {
        const [operation = "", path = ""] = write.split(" ");
        const [resource = "", subResource = ""] = path.split("/");
        // The conditions skip ordinary heartbeats, which are always about the kubelet's own node.
        const request = buildRequest(operation as Operation, {
          name: "n2",
          object: { metadata: { name: "n2" } },
          oldObject: { metadata: { name: "n2" } },
          resource: { ...pods, resource },
          subResource,
        });
        const called = selectEntries(request.operation, path).filter(({ matchConditions = [] }) =>
          matchConditions.every(({ expression }) => evaluateMatchCondition(expression, request)),
        );
        assert.deepEqual(
          called.map(({ name }) => name.split(".")[0]),
          [entry],
        );
      });
});
