import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { lookUp } from "postern/json";
import { applyOutcomePatch, createLiveCapabilities, openRule } from "postern/test";

const { decideCase } = await openRule(import.meta.dirname);

const [zone, region] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/** Binds a pod to a node twice in one process. The arguments are the node's labels at the first and the second time. */
const bindTwice = async (...labels: [object, object]) => {
  let present = labels[0];
  let reads = 0;
  const send = async () => {
    reads += 1;
    const body = JSON.stringify({ apiVersion: "v1", kind: "Node", metadata: { name: "n", labels: present } });
    return { status: 200, body, retryAfter: undefined };
  };
  const connection = { server: "https://127.0.0.1", credentials: { token: "t" } };
  const getCapabilities = createLiveCapabilities({ local: connection }, { send });
  const entry = {
    name: "binds",
    resource: "pods/binding",
    mutate: { metadata: {}, target: { kind: "Node", name: "n" } },
  };
  const written: unknown[] = [];
  for (present of labels) {
    // Waits for the next millisecond: an answer that was read in the same millisecond counts as current.
    for (const before = Date.now(); Date.now() === before; ) await wait(1);
    const { outcome } = await decideCase(entry, getCapabilities("local", 5000));
    written.push(lookUp(applyOutcomePatch(entry.mutate, outcome), ["metadata", "labels"])?.value);
  }
  return { written, reads };
};

describe("pod-topology-labels", () => {
  const zoneAndRegion = { [zone]: "z1", [region]: "r1" };
  it("pod-topology-labels reads a node only once if it has both labels", async () => {
    assert.deepEqual(await bindTwice(zoneAndRegion, zoneAndRegion), {
      written: [zoneAndRegion, zoneAndRegion],
      reads: 1,
    });
  });
  it("pod-topology-labels reads a node again if it lacked a label before", async () => {
    for (const before of [{}, { [zone]: "z1" }])
      assert.deepEqual((await bindTwice(before, zoneAndRegion)).written.at(-1), zoneAndRegion, JSON.stringify(before));
  });
});
