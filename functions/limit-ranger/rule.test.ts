import assert from "node:assert/strict";
import { it } from "node:test";
import { type Case, openRule } from "postern/test";

const { decideCase } = await openRule(import.meta.dirname);

const range = {
  apiVersion: "v1",
  kind: "LimitRange",
  metadata: { name: "all", namespace: "default" },
  spec: {
    limits: [
      { type: "Container", min: { cpu: "1" }, defaultRequest: { cpu: "1" } },
      { type: "PersistentVolumeClaim", max: { storage: "1Gi" } },
    ],
  },
};
const name = "is being deleted";
const pod = { metadata: { name: "a" }, spec: { containers: [{ name: "c" }] } };
const claim = { metadata: { name: "a" }, spec: { resources: { requests: { storage: "5Gi" } } } };
const cases: Case[] = [
  { name, resource: "pods/resize", oldObject: pod, mutate: pod },
  { name, resource: "pods/resize", oldObject: pod, validate: pod },
  { name, resource: "persistentvolumeclaims", oldObject: claim, validate: claim },
];

// No table of requests can say so: the API server lets nobody write when an object began to go.
for (const entry of cases)
  it(`lets ${"mutate" in entry ? "a pod go without defaults" : `${entry.resource} go beyond its bounds`}`, async () => {
    const touched = async (oldObject: Case["oldObject"]) => {
      const given: Case = { ...entry, ...(oldObject && { oldObject }), needs: { objects: [range] } };
      const { refused, operations } = await decideCase(given);
      return refused || operations > 0;
    };
    const metadata = { name: "a", deletionTimestamp: "2026-01-01T00:00:00Z" };
    assert.equal(await touched({ ...entry.oldObject, metadata }), false);
    assert.equal(await touched(entry.oldObject), true, "it would have acted otherwise");
  });
