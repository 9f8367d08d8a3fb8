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
const pod = { metadata: { name: "a" }, spec: { containers: [{ name: "c" }] } };
const claim = { metadata: { name: "a" }, spec: { resources: { requests: { storage: "5Gi" } } } };
/** Updates to which the LimitRange applies, unless the object is being deleted. Their names are not used. */
const updates: Case[] = [
  { name: "", resource: "pods/resize", oldObject: pod, mutate: pod },
  { name: "", resource: "pods/resize", oldObject: pod, validate: pod },
  { name: "", resource: "persistentvolumeclaims", oldObject: claim, validate: claim },
];

// These requests can't be cases, because cases also run against a real API server. It refuses changes of an object that
// is being deleted.
for (const update of updates)
  it(`limit-ranger ${"mutate" in update ? "adds no defaults to" : "checks no bounds of"} an object of ${update.resource} that is being deleted`, async () => {
    const isChangedOrRefused = async (oldObject: Case["oldObject"]) => {
      const caseWithRange: Case = { ...update, ...(oldObject && { oldObject }), needs: { objects: [range] } };
      const { refused, operations } = await decideCase(caseWithRange);
      return refused || operations > 0;
    };
    const metadata = { name: "a", deletionTimestamp: "2026-01-01T00:00:00Z" };
    assert.equal(await isChangedOrRefused({ ...update.oldObject, metadata }), false);
    assert.equal(
      await isChangedOrRefused(update.oldObject),
      true,
      "the rule acts on an object that is not being deleted",
    );
  });
