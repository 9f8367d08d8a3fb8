import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { parsePolicies } from "./policy-documents.ts";

const header = { apiVersion: "policy.kcloudlabs.io/v1alpha1", kind: "ClusterOverridePolicy" };
const buildPolicy = (name: string, spec: object = { overrideRules: [] }) => ({ ...header, metadata: { name }, spec });

test("parsePolicies reads policies from documents and lists", () => {
  const list = { apiVersion: "v1", kind: "List", items: [buildPolicy("b"), buildPolicy("c")] };
  const policyList = { ...header, kind: "ClusterOverridePolicyList", items: [buildPolicy("d")] };
  const { policies, faults } = parsePolicies([buildPolicy("a"), null, list, policyList]);
  const names = policies.map(({ metadata }) => metadata.name);
  assert.deepEqual(names, ["a", "b", "c", "d"]);
  assert.deepEqual(faults, []);
});

test("parsePolicies names the policy of each fault", () => {
  const documents = [
    buildPolicy("a", {}),
    { ...buildPolicy("b"), kind: "OverridePolicy" },
    buildPolicy("c"),
    buildPolicy("c"),
  ];
  const { policies, faults } = parsePolicies(documents);
  assert.deepEqual(policies, [buildPolicy("c")]);
  assert.deepEqual(faults, [
    "ClusterOverridePolicy a: spec.overrideRules is missing",
    "OverridePolicy b: metadata.namespace is missing; an OverridePolicy applies only in its own namespace",
    "ClusterOverridePolicy c: is there twice",
  ]);
});

test("parsePolicies refuses documents that are no policies", () => {
  const { faults } = parsePolicies([
    "text",
    { apiVersion: "v1", kind: "Pod", metadata: { name: "a", namespace: "b" } },
  ]);
  assert.deepEqual(faults, [
    "a document without a name: a policy must be a map",
    'Pod b/a: is "Pod" of "v1", which is no policy; the kinds of policies are OverridePolicy, ClusterOverridePolicy, ClusterValidatePolicy of policy.kcloudlabs.io/v1alpha1',
  ]);
});

test("parsePolicies accepts a field expression with `values`, which kinitiras itself calls `value`", () => {
  const matchExpressions = [{ field: "spec.a", operator: "In", values: ["b"] }];
  const resourceSelectors = [{ apiVersion: "v1", kind: "Pod", fieldSelector: { matchExpressions } }];
  assert.deepEqual(parsePolicies([buildPolicy("a", { resourceSelectors, overrideRules: [] })]).faults, []);
});

test("parsePolicies returns sentences about documents that are any JSON", () => {
  fc.assert(
    fc.property(fc.array(fc.jsonValue()), (documents) => {
      const { policies, faults } = parsePolicies(documents);
      assert.equal(policies.length, 0);
      assert.ok(faults.every((fault) => /^.+: ./.test(fault)));
    }),
  );
});
