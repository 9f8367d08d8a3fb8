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
const name = "unused";
const pod = { metadata: { name: "a" }, spec: { containers: [{ name: "c" }] } };
const claim = { metadata: { name: "a" }, spec: { resources: { requests: { storage: "5Gi" } } } };
const cases: Case[] = [
  { name, resource: "pods/resize", oldObject: pod, mutate: pod },
  { name, resource: "pods/resize", oldObject: pod, validate: pod },
  { name, resource: "persistentvolumeclaims", oldObject: claim, validate: claim },
];

// These requests can't be cases, because cases also run against a real API server. It refuses changes of an object that
// is being deleted.
for (const deletionCase of cases)
  it(`limit-ranger ${"mutate" in deletionCase ? "adds no defaults to" : "checks no bounds of"} an object of ${deletionCase.resource} that is being deleted`, async () => {
    const isChangedOrRefused = async (oldObject: Case["oldObject"]) => {
      const caseWithRange: Case = { ...deletionCase, ...(oldObject && { oldObject }), needs: { objects: [range] } };
      const { refused, operations } = await decideCase(caseWithRange);
      return refused || operations > 0;
    };
    const metadata = { name: "a", deletionTimestamp: "2026-01-01T00:00:00Z" };
    assert.equal(await isChangedOrRefused({ ...deletionCase.oldObject, metadata }), false);
    assert.equal(
      await isChangedOrRefused(deletionCase.oldObject),
      true,
      "the rule acts on an object that is not being deleted",
    );
  });
