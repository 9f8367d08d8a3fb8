import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { connectWorlds, openRule, patched } from "postern/test";

const { decideCase } = await openRule(import.meta.dirname);

const [zone, region] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/** Binds a pod to a node twice, in one environment, with the node's labels as they are each time. */
const bindTwice = async (...labels: [object, object]) => {
  let present = labels[0];
  let reads = 0;
  const send = async () => {
    reads += 1;
    const body = JSON.stringify({ apiVersion: "v1", kind: "Node", metadata: { name: "n", labels: present } });
    return { status: 200, body, retryAfter: undefined };
  };
  const connection = { server: "https://127.0.0.1", credentials: { token: "t" } };
  const world = connectWorlds({ local: connection }, undefined, undefined, undefined, send);
  const entry = {
    name: "binds",
    resource: "pods/binding",
    mutate: { metadata: {}, target: { kind: "Node", name: "n" } },
  };
  const made: unknown[] = [];
  for (present of labels) {
    // What is read in the millisecond in which a review begins is as it is then.
    for (const before = Date.now(); Date.now() === before; ) await wait(1);
    const { outcome } = await decideCase(entry, world("local", 5000));
    made.push(Object(patched(entry.mutate, outcome)).metadata.labels);
  }
  return { made, reads };
};

describe("labels of a node that the function has seen", () => {
  const whole = { [zone]: "z1", [region]: "r1" };
  it("are remembered where it had both", async () => {
    assert.deepEqual(await bindTwice(whole, whole), { made: [whole, whole], reads: 1 });
  });
  it("are read anew where it lacked one", async () => {
    for (const before of [{}, { [zone]: "z1" }])
      assert.deepEqual((await bindTwice(before, whole)).made.at(-1), whole, JSON.stringify(before));
  });
});
