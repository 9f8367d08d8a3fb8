import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { decide } from "postern/decide";
import { recorded } from "postern/recorded-answers";
import type { KubernetesObject, Request } from "postern/review";
import type { Phase } from "postern/rule";
import rule from "./rule.ts";

const policy = (text: string): KubernetesObject => ({
  ...{ apiVersion: "policy.kcloudlabs.io/v1alpha1", kind: "ClusterOverridePolicy", metadata: { name: "old" } },
  ...{ spec: { overrideRules: [{ overriders: { renderedCue: text } }] } },
});
const update = (phase: Phase, object: KubernetesObject, oldObject: KubernetesObject) => {
  const request = { operation: "UPDATE", object, oldObject } as unknown as Request;
  const settings = rule.settings ?? {};
  // Nothing is recorded: whoever asks, fails.
  return decide(rule, phase, request, {
    ...{ name: "policy-admission", mode: "enforce", settings, now: new Date(0), world: recorded({}) },
  });
};

describe("an update of a policy", () => {
  it("completes nothing where its spec is as it was", async () => {
    const old = policy("patches: []");
    assert.equal((await update("mutate", structuredClone(old), old)).operations, 0);
    assert.equal((await update("mutate", policy("patches: [1]"), old)).operations, 1);
  });
});
