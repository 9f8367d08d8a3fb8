import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { AdmissionRequest, KubernetesObject } from "postern/review";
import type { Phase } from "postern/rule";
import { openRule } from "postern/test";

const { decide } = await openRule(import.meta.dirname);

const buildPolicy = (text: string) => ({
  apiVersion: "policy.kcloudlabs.io/v1alpha1",
  kind: "ClusterOverridePolicy",
  metadata: { name: "old" },
  spec: { overrideRules: [{ overriders: { renderedCue: text } }] },
});
const update = (phase: Phase, object: KubernetesObject, oldObject: KubernetesObject) => {
  const request = { operation: "UPDATE", object, oldObject } as unknown as AdmissionRequest;
  // The rule fails if it reads from the cluster, because no answers are recorded.
  return decide(phase, request);
};

describe("an update of a policy", () => {
  it("policy-admission renders the templates of a policy only if an update changes its spec", async () => {
    const old = buildPolicy("patches: []");
    assert.equal((await update("mutate", structuredClone(old), old)).operations, 0);
    assert.equal((await update("mutate", buildPolicy("patches: [1]"), old)).operations, 1);
  });
});
