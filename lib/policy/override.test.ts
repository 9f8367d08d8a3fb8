import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { parse } from "yaml";
import { applyPolicies, type PolicyApplication } from "#lib/policy/override.ts";
import type { KinitirasPolicy, OverridePolicy, OverrideRule } from "#lib/policy/types.ts";
import type { KubernetesObject } from "#lib/review.ts";
import {
  benchPolicyCases,
  buildPolicyCaseRequest,
  createPolicyCaseCapabilities,
  needsCue,
  normalizeObjectForComparison,
} from "../../test/bench/inputs/example-policies.ts";
import { applyPatch } from "../core/patch.ts";
import { Failure } from "../failure.ts";

const freeze = <T>(value: T): T => {
  if (typeof value === "object" && value !== null) Object.values(value).forEach(freeze);
  return Object.freeze(value);
};

const apply = (application: Omit<PolicyApplication, "capabilities"> & Partial<PolicyApplication>) =>
  applyPolicies({ capabilities: createPolicyCaseCapabilities(), ...application });

const buildPolicy = (name: string, rules: OverrideRule[], rest: Partial<OverridePolicy> = {}): OverridePolicy => ({
  apiVersion: "policy.kcloudlabs.io/v1alpha1",
  kind: "ClusterOverridePolicy",
  metadata: { name },
  spec: { overrideRules: rules },
  ...rest,
});

const addLabel = (key: string, value: string): OverrideRule => ({
  overriders: { template: { type: "labels", operation: "add", path: key, value: { string: value } } },
});

const pod: KubernetesObject = { apiVersion: "v1", kind: "Pod", metadata: { name: "web", namespace: "default" } };

describe("override policies of the cases measured with kinitiras", () => {
  const cases = benchPolicyCases.filter(
    (policyCase) =>
      policyCase.expect.policy !== "rejected" &&
      policyCase.policies.some(({ kind }) => kind !== "ClusterValidatePolicy"),
  );
  for (const policyCase of cases.filter((one) => !needsCue(one)))
    it(`have the measured result in ${policyCase.id}`, async () => {
      const { expect, policies, cluster, http } = policyCase;
      const request = freeze(buildPolicyCaseRequest(policyCase));
      const capabilities = createPolicyCaseCapabilities({ cluster, http });
      const result = applyPolicies({ ...request, policies: freeze(structuredClone(policies)), capabilities });
      if (expect.error) {
        await assert.rejects(
          result,
          (error) => error instanceof Failure && error.message.includes(policies[0]?.kind ?? ""),
        );
        return;
      }
      const { object, patch, applied } = await result;
      if (expect.object)
        assert.deepEqual(normalizeObjectForComparison(object), normalizeObjectForComparison(expect.object));
      if (policyCase.operation === "DELETE") assert.deepEqual([patch, applied], [[], []]);
      assert.deepEqual(applyPatch(request.object, patch), object);
      // If the object was changed, an applied rule has `sources`: its parts that changed the object.
      assert.ok(applied.some(({ sources }) => sources.length > 0) || patch.length === 0);
    });
});

describe("override policies", () => {
  it("applyPolicies returns the rules that were applied, and which of their parts changed the object", async () => {
    const rule: OverrideRule = {
      overriders: {
        template: { type: "labels", operation: "add", path: "a", value: { string: "1" } },
        plaintext: [{ op: "add", path: "/metadata/labels/a", value: "1" }],
        origin: [{ type: "annotations", operation: "add", annotations: { b: "2" } }],
      },
    };
    const first = buildPolicy("first", [{ ...addLabel("x", "1"), targetOperations: ["DELETE"] }, rule]);
    const { applied, patch } = await apply({ policies: [first], object: pod, operation: "CREATE" });
    assert.deepEqual(applied, [{ policy: first, rule: 1, sources: ["template", "origin"] }]);
    assert.deepEqual(patch, [
      { op: "add", path: "/metadata/labels", value: { a: "1" } },
      { op: "add", path: "/metadata/annotations", value: { b: "2" } },
    ]);
  });

  it("applyPolicies returns no patch if the object already has the label that the policy adds", async () => {
    const object = { ...pod, metadata: { ...pod.metadata, labels: { a: "1" } } };
    const policies = [buildPolicy("a", [addLabel("a", "1")])];
    const { patch, applied } = await apply({ policies, object, operation: "UPDATE" });
    assert.deepEqual(patch, []);
    const changingParts = applied.map(({ sources }) => sources);
    assert.deepEqual(changingParts, [[]]);
  });

  it("applyPolicies selects OverridePolicies by the object that ClusterOverridePolicies have changed", async () => {
    const spec = {
      resourceSelectors: [{ apiVersion: "v1", kind: "Pod", labelSelector: { matchLabels: { a: "1" } } }],
      overrideRules: [addLabel("b", "2")],
    };
    const metadata = { name: "late", namespace: "default" };
    const policies: KinitirasPolicy[] = [
      buildPolicy("late", [], { kind: "OverridePolicy", metadata, spec }),
      buildPolicy("a", [addLabel("a", "1")]),
    ];
    const { object } = await apply({ policies, object: pod, operation: "CREATE" });
    assert.deepEqual(object.metadata?.labels, { a: "1", b: "2" });
  });

  it("applyPolicies applies every rule to the result of the rules before it, by the policies' names", async () => {
    const reference: OverrideRule = {
      overriders: {
        template: {
          type: "annotations",
          operation: "add",
          path: "seen",
          valueRef: { from: "current", path: "/metadata/labels/a" },
        },
      },
    };
    const policies = [buildPolicy("b", [reference]), buildPolicy("a", [addLabel("a", "1"), addLabel("a", "2")])];
    const { object } = await apply({ policies, object: pod, operation: "CREATE" });
    assert.deepEqual(object.metadata?.annotations, { seen: "2" });
  });

  it("applyPolicies resolves no valueRef if the template has a constant or removes a key", async () => {
    const valueRef = { from: "owner" as const, path: "/metadata/name" };
    const object = {
      ...pod,
      metadata: { ...pod.metadata, ownerReferences: [{ apiVersion: "v1", kind: "X", name: "gone" }] },
    };
    const rules: OverrideRule[] = [
      {
        overriders: { template: { type: "labels", operation: "add", path: "a", value: { boolean: false }, valueRef } },
      },
      { overriders: { template: { type: "labels", operation: "remove", path: "b", valueRef } } },
    ];
    const { patch } = await apply({ policies: [buildPolicy("a", rules)], object, operation: "CREATE" });
    assert.deepEqual(patch, [{ op: "add", path: "/metadata/labels", value: { a: "false" } }]);
  });

  it("applyPolicies adds labels whose keys are names of prototype members, such as __proto__", async () => {
    const rules = ["__proto__", "constructor", "toString"].map((key) => addLabel(key, "x"));
    const { object, patch } = await apply({ policies: [buildPolicy("a", rules)], object: pod, operation: "CREATE" });
    assert.deepEqual(Object.entries(object.metadata?.labels ?? {}), [
      ["__proto__", "x"],
      ["constructor", "x"],
      ["toString", "x"],
    ]);
    assert.equal(
      JSON.stringify(patch),
      '[{"op":"add","path":"/metadata/labels","value":{"__proto__":"x","constructor":"x","toString":"x"}}]',
    );
  });

  const failures: { name: string; overriders: unknown; message: string }[] = parse(
    readFileSync(new URL("failures.yaml", import.meta.url), "utf8"),
  ).override;
  const specs = failures.map(({ name, overriders, message }) => ({
    name,
    spec: { overrideRules: [{ overriders }] },
    message: `ClusterOverridePolicy p, overrideRules[0]: ${message}`,
  }));
  const notAList = "ClusterOverridePolicy p: spec.overrideRules must be a list of rules";
  for (const { name, spec, message } of [
    { name: "rules that are a map", spec: { overrideRules: {} }, message: notAList },
    ...specs,
  ])
    it(`fails for ${name}`, async () => {
      const policies = [{ kind: "ClusterOverridePolicy", metadata: { name: "p" }, spec } as unknown as KinitirasPolicy];
      const result = apply({ policies, object: pod, operation: "CREATE" });
      await assert.rejects(result, { name: "Error", code: 500, message });
    });

  it("applyPolicies does nothing if a policy has no spec, no rules or no overriders", async () => {
    const policies = [
      undefined,
      {},
      { overrideRules: null },
      { overrideRules: [{}, { overriders: { template: null, plaintext: null, origin: null, cue: "" } }] },
    ].map((spec) => ({ kind: "ClusterOverridePolicy", metadata: { name: "p" }, spec }) as unknown as KinitirasPolicy);
    assert.deepEqual((await apply({ policies, object: pod, operation: "CREATE" })).patch, []);
  });

  for (const operation of ["DELETE", "CONNECT"] as const)
    it(`does not change an object on ${operation}`, async () => {
      const { patch, applied } = await apply({
        policies: [buildPolicy("a", [addLabel("a", "1")])],
        object: pod,
        operation,
      });
      assert.deepEqual([patch, applied], [[], []]);
    });
});
