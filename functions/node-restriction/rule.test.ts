import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { AdmissionRequest, Operation } from "postern/review";
import { condition, openRule } from "postern/test";
import { isKubelet, isUnusual } from "./webhook-entries.ts";

const { decide, entries } = await openRule(import.meta.dirname);

// What no API server sends in a case of its own: it asks for each of many objects that are deleted at once without a
// name, and for no eviction without a name.

const pods = { group: "", version: "v1", resource: "pods" };
const request = (operation: Operation, more: Partial<AdmissionRequest>): AdmissionRequest => ({
  ...{ uid: "1", operation, namespace: "default", resource: pods, kind: { group: "", version: "v1", kind: "Pod" } },
  ...{ userInfo: { username: "system:node:n1", groups: ["system:nodes"] }, ...more },
});
const saidTo = async (request: AdmissionRequest) => (await decide("mutate", request)).outcome.status;

describe("node-restriction", () => {
  it("answers a deletion without a name as if the pod was gone, which deletes none of many", async () => {
    const oldObject = { metadata: { name: "a" }, spec: { nodeName: "n1" } };
    const status = await saidTo(request("DELETE", { oldObject }));
    assert.deepEqual(status, { code: 404, reason: "NotFound", message: 'pod "" not found', details: { kind: "pod" } });
  });

  it("refuses an eviction without a name", async () => {
    const status = await saidTo(request("CREATE", { subResource: "eviction", object: { metadata: {} } }));
    assert.equal(status?.message, 'pods "Unknown" is forbidden: could not determine pod from request data');
  });

  it("isn't called for what kubelets write all the time", () => {
    const calls = (request: AdmissionRequest) =>
      Object.values({ ...isKubelet, ...isUnusual }).every((expression) => condition(expression)(request));
    const leases = { group: "coordination.k8s.io", version: "v1", resource: "leases" };
    const lease = { metadata: { name: "n1" }, spec: { holderIdentity: "n1" } };
    const ofLease = { resource: leases, namespace: "kube-node-lease", name: "n1", object: lease };
    const node = {
      metadata: { name: "n1", labels: { a: "b" } },
      spec: { taints: [{ key: "t", effect: "NoSchedule" }] },
    };
    const ofNode = { name: "n1", resource: { ...pods, resource: "nodes" }, subResource: "status", oldObject: node };
    const pod = { metadata: { name: "a", labels: { a: "b" } }, spec: { nodeName: "n1" } };
    const ofPod = { name: "a", subResource: "status", oldObject: pod };
    const running = { phase: "Running" };
    for (const usual of [
      request("CREATE", ofLease),
      request("UPDATE", { ...ofLease, oldObject: lease }),
      request("UPDATE", { ...ofNode, object: { ...node, status: running } }),
      request("UPDATE", { ...ofPod, object: { ...pod, status: running } }),
    ]) {
      assert.equal(calls(usual), false, JSON.stringify(usual));
      const other = { username: "system:node:n2", groups: ["system:nodes"] };
      assert.equal(calls({ ...usual, userInfo: other }), true, "of another node");
      assert.equal(calls({ ...usual, userInfo: { username: "jane" } }), false, "by no kubelet");
    }
  });

  it("looks into nothing that a kubelet may write of a claim", async () => {
    const claim = (depth: number, phase: string) => {
      const fieldsV1 = JSON.parse(`${'{"f:a":'.repeat(depth)}{}${"}".repeat(depth)}`);
      return { metadata: { name: "a", managedFields: [{ fieldsV1 }] }, spec: {}, status: { phase } };
    };
    const ofClaim = { resource: { ...pods, resource: "persistentvolumeclaims" }, subResource: "status", name: "a" };
    const said = async (phase: string) => {
      const [object, oldObject] = [claim(10_000, phase), claim(9_999, "Bound")];
      return (await saidTo(request("UPDATE", { ...ofClaim, object, oldObject })))?.message;
    };
    assert.equal(await said("Bound"), undefined);
    assert.match(String(await said("Lost")), /: status\.phase$/);
  });

  it("looks at labels by whatever name", async () => {
    const node = (labels: object) => ({ metadata: { name: "n1", labels } });
    const nodes = { name: "n1", resource: { ...pods, resource: "nodes" } };
    const odd = JSON.parse('{ "__proto__": "a", "constructor": "b", "toString": "c", "/": "d", "k8s.io/": "e" }');
    const status = await saidTo(request("UPDATE", { ...nodes, object: node(odd), oldObject: node({}) }));
    assert.equal(status?.message, 'nodes "n1" is forbidden: is not allowed to modify labels: k8s.io/');
    const object = node(JSON.parse('{ "__proto__": "a", "k8s.io/constructor": "b" }'));
    assert.equal(await saidTo(request("UPDATE", { ...nodes, object, oldObject: structuredClone(object) })), undefined);
  });
});

describe("its entries", () => {
  const failures = (config: object, harden: boolean) =>
    entries(config, harden).map(({ name, failurePolicy, namespaceSelector }) => {
      const spared = namespaceSelector?.matchExpressions?.flatMap(({ values = [] }) => values) ?? [];
      return [name.split(".")[0], failurePolicy, ...spared].join(" ");
    });

  it("all fail closed once hardened, and only what nodes heal by passes in the namespaces that heal a cluster", () =>
    assert.deepEqual(failures({}, true), ["heartbeats Fail", "pods Fail", "others Fail kube-system kube-node-lease"]));
  it("fail closed everywhere where that is written out", () =>
    assert.deepEqual(failures({ exempt: { namespaces: [] } }, true), ["heartbeats Fail", "pods Fail", "others Fail"]));
  it("fail open otherwise", () =>
    assert.deepEqual(failures({}, false), ["heartbeats Ignore", "pods Ignore", "others Ignore"]));

  const matching = (operation: Operation, path: string) => {
    const [resource = "", sub = ""] = path.split("/");
    return entries({}, true).filter(({ rules }) =>
      rules.some(
        ({ operations, resources }) =>
          operations.includes(operation) &&
          [path, ...(sub ? [`${resource}/*`] : [])].some((one) => resources.includes(one)),
      ),
    );
  };
  const writes: Record<string, string[]> = {
    heartbeats: ["CREATE leases", "UPDATE leases", "DELETE leases", "UPDATE nodes/status", "UPDATE pods/status"],
    pods: [
      ...["CREATE pods", "UPDATE pods", "CREATE pods/binding", "UPDATE pods/ephemeralcontainers", "UPDATE pods/resize"],
      ...["UPDATE pods/yet-to-come", "CREATE nodes", "UPDATE nodes", "DELETE nodes"],
    ],
    others: [
      ...[
        "DELETE pods",
        "CREATE pods/eviction",
        "CREATE serviceaccounts/token",
        "UPDATE persistentvolumeclaims/status",
      ],
      ...["CREATE csinodes", "UPDATE csinodes", "DELETE csinodes", "CREATE resourceslices", "DELETE resourceslices"],
      ...["CREATE certificatesigningrequests", "CREATE podcertificaterequests"],
    ],
  };
  for (const [entry, requests] of Object.entries(writes))
    for (const write of requests)
      it(`have one for ${write} by a kubelet, ${entry}`, () => {
        const [operation = "", path = ""] = write.split(" ");
        const [resource = "", subResource = ""] = path.split("/");
        // Of another node: nothing of it is usual.
        const asked = request(operation as Operation, {
          ...{ name: "n2", object: { metadata: { name: "n2" } }, oldObject: { metadata: { name: "n2" } } },
          ...{ resource: { ...pods, resource }, subResource },
        });
        const called = matching(asked.operation, path).filter(({ matchConditions = [] }) =>
          matchConditions.every(({ expression }) => condition(expression)(asked)),
        );
        assert.deepEqual(
          called.map(({ name }) => name.split(".")[0]),
          [entry],
        );
      });
});
