import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { ResourceQuota } from "postern/kubernetes/core/v1";
import type { Capabilities } from "postern/needs";
import type { AdmissionRequest } from "postern/review";
import { createRecordedCapabilities, openRule } from "postern/test";

const { decide, entries } = await openRule(import.meta.dirname);
const quotas = { group: "", resource: "resourcequotas" };

const buildQuota = (name: string, hard: Record<string, string>, used: Record<string, string> = {}) => {
  const zero = Object.fromEntries(Object.keys(hard).map((key) => [key, "0"]));
  const metadata = { name, namespace: "shop", resourceVersion: "1" };
  return { apiVersion: "v1", kind: "ResourceQuota", metadata, status: { hard, used: { ...zero, ...used } } };
};
const buildContainers = (...cpu: string[]) =>
  cpu.map((cpu, index) => ({ name: `c${index}`, resources: { requests: { cpu } } }));

/** Sends the creation of a pod with containers. Returns the refusal, or an empty text if the pod is admitted. */
const createPod = async (
  containers: object[],
  capabilities: Capabilities,
  overrides: Partial<AdmissionRequest> = {},
): Promise<string> => {
  const request: AdmissionRequest = {
    uid: "u",
    kind: { group: "", version: "v1", kind: "Pod" },
    resource: { group: "", version: "v1", resource: "pods" },
    namespace: "shop",
    name: "p",
    operation: "CREATE",
    userInfo: { username: "jane" },
    object: { metadata: { name: "p" }, spec: { containers } },
    ...overrides,
  };
  const { outcome } = await decide("validate", request, { settings: { charges: true }, capabilities });
  return outcome.status?.message ?? "";
};
const readUsed = async (capabilities: Capabilities) =>
  ((await capabilities.list(quotas, "shop")) as ResourceQuota[]).map(({ status }) => status?.used);

describe("resource-quota", () => {
  it("resource-quota charges each quota that counts an object, in the quota's notation", async () => {
    const objects = [
      buildQuota("a", { cpu: "2", pods: "2" }, { cpu: "100e-3", pods: "1" }),
      buildQuota("b", { "requests.cpu": "2", services: "1" }),
    ];
    const capabilities = createRecordedCapabilities({ objects });
    assert.equal(await createPod(buildContainers("250m", "500m"), capabilities), "");
    assert.deepEqual(await readUsed(capabilities), [
      { cpu: "850e-3", pods: "2" },
      { "requests.cpu": "750m", services: "0" },
    ]);
  });

  it("resource-quota charges no quota if another quota refuses", async () => {
    const objects = [buildQuota("a", { pods: "2" }), buildQuota("b", { pods: "0" })];
    const capabilities = createRecordedCapabilities({ objects });
    assert.match(await createPod(buildContainers("1"), capabilities), /exceeded quota: b/);
    assert.deepEqual(await readUsed(capabilities), [{ pods: "0" }, { pods: "0" }]);
  });

  it("resource-quota never exceeds hard for concurrent requests, and admits all pods if all fit", async () => {
    for (const [hard, count] of [
      [1000, 32],
      [3000, 32],
      [9000, 17],
      [20_000, 32],
    ] as const) {
      const objects = [buildQuota("a", { "requests.cpu": `${hard}m` }), buildQuota("b", { pods: "20" })];
      const capabilities = createRecordedCapabilities({ objects });
      // Different amounts from 1m to 900m, the same amounts in each run.
      const amounts = Array.from({ length: count }, (_, index) => 1 + ((index * 271) % 900));
      const answers = await Promise.all(
        amounts.map((amount) => createPod(buildContainers(`${amount}m`), capabilities)),
      );
      const admitted = amounts.filter((_, index) => answers[index] === "");
      const sum = admitted.reduce((left, right) => left + right, 0);
      assert.ok(sum <= hard && admitted.length <= 20, `${sum} of ${hard}`);
      // As in upstream, a request can leave a charge in one quota and then be refused by another one.
      const [{ "requests.cpu": cpu = "" } = {}, { pods = "" } = {}] = await readUsed(capabilities);
      assert.ok(toThousandths(cpu) >= sum && toThousandths(cpu) <= hard && Number(pods) >= admitted.length);
      // All 17 requests fit into 9000m.
      if (hard === 9000) assert.deepEqual([toThousandths(cpu), pods], [sum, String(count)]);
    }
  });

  it("resource-quota charges only that quota again whose update failed because of another request", async () => {
    const objects = [buildQuota("a", { pods: "9" }), buildQuota("b", { pods: "9" })];
    const capabilities = createRecordedCapabilities({ objects });
    let isFirst = true;
    const contestedCapabilities: Capabilities = {
      ...capabilities,
      updateStatus: async (kind, object) => {
        if (object.metadata?.name !== "b" || !isFirst) return capabilities.updateStatus(kind, object);
        isFirst = false;
        await createPod(buildContainers("1"), capabilities);
        return capabilities.updateStatus(kind, object);
      },
    };
    assert.equal(await createPod(buildContainers("1"), contestedCapabilities), "");
    assert.deepEqual(await readUsed(capabilities), [{ pods: "2" }, { pods: "2" }]);
  });

  it("resource-quota refuses a request if concurrent requests have used up the quota", async () => {
    const capabilities = createRecordedCapabilities({ objects: [buildQuota("a", { pods: "1" })] });
    const answers = await Promise.all(Array.from({ length: 3 }, () => createPod(buildContainers("1"), capabilities)));
    assert.deepEqual(answers.toSorted(), [
      "",
      ...Array(2).fill('pods "p" is forbidden: exceeded quota: a, requested: pods=1, used: pods=1, limited: pods=1'),
    ]);
  });

  it("resource-quota admits an object whose quota is deleted before it is charged", async () => {
    const capabilities = createRecordedCapabilities({ objects: [buildQuota("a", { pods: "1" })] });
    let isGone = false;
    const deleting: Capabilities = {
      ...capabilities,
      list: async (...asked) => (isGone ? [] : capabilities.list(...asked)),
      updateStatus: async () => {
        isGone = true;
        return "changed";
      },
    };
    assert.equal(await createPod(buildContainers("1"), deleting), "");
  });

  it("resource-quota refuses a resize without an old object", async () => {
    const capabilities = createRecordedCapabilities({ objects: [buildQuota("a", { pods: "1" })] });
    assert.match(
      await createPod(buildContainers("1"), capabilities, { operation: "UPDATE", subResource: "resize" }),
      /: unable to get previous usage since prior version of object was not found$/,
    );
  });

  it("an ended pod counts only as an object, and in full if its old object may not be stored", async () => {
    const objects = [buildQuota("a", { "count/pods": "1", pods: "1" }, { "count/pods": "1", pods: "1" })];
    const pod = { metadata: { name: "p" }, spec: { containers: [] }, status: { phase: "Failed" } };
    assert.match(
      await createPod([], createRecordedCapabilities({ objects }), {
        operation: "UPDATE",
        subResource: "resize",
        object: pod,
        // Without a resourceVersion, it isn't certain that the old object was stored.
        oldObject: pod,
      }),
      /exceeded quota: a, requested: count\/pods=1, used: count\/pods=1, limited: count\/pods=1$/,
    );
  });

  it("resource-quota adds up 10,000 containers", async () => {
    const capabilities = createRecordedCapabilities({ objects: [buildQuota("a", { cpu: "10" })] });
    const containers = buildContainers(...Array<string>(10_000).fill("1m"));
    assert.equal(await createPod(containers, capabilities), "");
    assert.deepEqual(await readUsed(capabilities), [{ cpu: "10" }]);
    assert.match(await createPod(buildContainers("1m"), capabilities), /requested: cpu=1m, used: cpu=10/);
  });

  it("resource-quota is called for all creations with charges, and otherwise only for limited resources", () => {
    const listCalls = (settings: object) =>
      (entries({ settings })[0]?.rules ?? []).map(
        ({ apiGroups, resources, operations }) => `${operations} ${resources}.${apiGroups}`,
      );
    assert.deepEqual(listCalls({ charges: true }), [
      "CREATE *.*",
      "UPDATE pods,pods/resize.",
      "UPDATE services.",
      "UPDATE persistentvolumeclaims,persistentvolumeclaims/status.",
      "UPDATE resourceclaims.resource.k8s.io",
    ]);
    const storage = { resource: "persistentvolumeclaims", matchContains: ["storage"] };
    assert.deepEqual(listCalls({ limitedResources: [storage, storage] }), [
      "CREATE persistentvolumeclaims.",
      "UPDATE persistentvolumeclaims,persistentvolumeclaims/status.",
    ]);
    const jobs = {
      apiGroup: "batch",
      resource: "jobs",
      matchScopes: [{ scopeName: "BestEffort", operator: "Exists" }],
    };
    assert.deepEqual(listCalls({ limitedResources: [jobs] }), [
      "CREATE jobs.batch",
      "CREATE pods.",
      "CREATE persistentvolumeclaims.",
      "UPDATE pods,pods/resize.",
      "UPDATE persistentvolumeclaims,persistentvolumeclaims/status.",
    ]);
  });
});

const toThousandths = (amount: string): number =>
  amount.endsWith("m") ? Number(amount.slice(0, -1)) : Number(amount) * 1000;
