import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { suite, test } from "node:test";
import fc from "fast-check";
import { parse } from "yaml";
import { buildPolicyIndex, findOverridePolicies, findValidatePolicies } from "./policy-index.ts";
import { matchesAnySelector } from "./selectors.ts";
import {
  getPolicyName,
  type KinitirasPolicy,
  type OverridePolicy,
  type PolicyRequest,
  type ResourceSelector,
  type ValidatePolicy,
} from "./types.ts";

const apiVersion = "policy.kcloudlabs.io/v1alpha1";
const anyPod: ResourceSelector = { apiVersion: "v1", kind: "Pod" };

const buildClusterPolicy = (name: string, ...resourceSelectors: ResourceSelector[]): OverridePolicy => {
  return {
    apiVersion,
    kind: "ClusterOverridePolicy",
    metadata: { name },
    spec: { resourceSelectors, overrideRules: [] },
  };
};
const buildPolicy = (namespace: string, name: string, ...resourceSelectors: ResourceSelector[]): OverridePolicy => {
  const spec = { resourceSelectors, overrideRules: [] };
  return { apiVersion, kind: "OverridePolicy", metadata: { namespace, name }, spec };
};
const buildValidatePolicy = (name: string, ...resourceSelectors: ResourceSelector[]): ValidatePolicy => {
  const spec = { resourceSelectors, validateRules: [] };
  return { apiVersion, kind: "ClusterValidatePolicy", metadata: { name }, spec };
};
const buildRequest = (object: PolicyRequest["object"], namespace?: string): PolicyRequest => {
  return { operation: "CREATE", object, ...(namespace !== undefined && { namespace }) };
};
const buildPod = (namespace?: string) => ({ ...anyPod, metadata: { name: "p", ...(namespace && { namespace }) } });

const listNames = (policies: readonly KinitirasPolicy[], request: PolicyRequest) =>
  findOverridePolicies(policies, request).map(getPolicyName);

interface Case {
  name: string;
  policy: { namespace?: string; selectors?: Partial<ResourceSelector>[] };
  object: { kind?: string; name?: string; namespace?: string };
  requestNamespace?: string;
  applies: boolean;
}
const cases: Case[] = parse(readFileSync(new URL("policy-index.yaml", import.meta.url), "utf8"));

suite("a policy index", () => {
  test("a policy index sorts cluster policies first, then by the bytes of the name, then by namespace", () => {
    const policies = [
      buildPolicy("b", "x"),
      buildClusterPolicy("z"),
      buildClusterPolicy("\u{10000}"),
      buildClusterPolicy("\uffff"),
      buildClusterPolicy("a-b"),
      buildClusterPolicy("a"),
      buildClusterPolicy("B"),
      buildPolicy("b", "a"),
    ];
    assert.deepEqual(listNames(policies, buildRequest(buildPod("b"))), [
      "B",
      "a",
      "a-b",
      "z",
      "\uffff",
      "\u{10000}",
      "b/a",
      "b/x",
    ]);
  });

  test("a policy index keeps the order of policies with the same name", () => {
    const namesakes = [buildValidatePolicy("a", anyPod), buildValidatePolicy("a"), buildValidatePolicy("a", anyPod)];
    const found = findValidatePolicies(namesakes, buildRequest(buildPod("b")));
    assert.deepEqual(found, namesakes);
    assert.ok(found.every((policy, index) => policy === namesakes[index]));
  });

  test("a policy index finds policies whose selectors match the object, and policies without selectors", () => {
    const node = { apiVersion: "v1", kind: "Node" };
    const policies = [
      buildClusterPolicy("all"),
      buildClusterPolicy("pods", anyPod),
      buildClusterPolicy("nodes", node),
      buildClusterPolicy("both", node, anyPod),
    ];
    assert.deepEqual(listNames(policies, buildRequest(buildPod("b"))), ["all", "both", "pods"]);
    assert.deepEqual(listNames(policies, buildRequest({ ...node, metadata: { name: "n" } })), ["all", "both", "nodes"]);
    assert.deepEqual(listNames(policies, buildRequest({ apiVersion: "v1", kind: "Secret" })), ["all"]);
  });

  test("a policy index finds a policy once, even if several of its selectors match the object", () => {
    const policy = buildClusterPolicy("a", anyPod, { ...anyPod, name: "p" });
    assert.deepEqual(listNames([policy], buildRequest(buildPod("b"))), ["a"]);
  });

  for (const { name, policy, object, requestNamespace = "b", applies } of cases)
    test(name, () => {
      const { namespace, selectors = [] } = policy;
      const resourceSelectors = selectors.map((selector) => ({ ...anyPod, ...selector }));
      const sample = namespace
        ? buildPolicy(namespace, "a", ...resourceSelectors)
        : buildClusterPolicy("a", ...resourceSelectors);
      const { kind = "Pod", ...metadata } = object;
      const request = buildRequest({ apiVersion: "v1", kind, metadata: { name: "p", ...metadata } }, requestNamespace);
      assert.equal(listNames([sample], request).length, applies ? 1 : 0);
    });

  test("a policy index finds no policies for a request whose object is a policy, of any version", () => {
    for (const kind of ["OverridePolicy", "ClusterOverridePolicy", "ClusterValidatePolicy"])
      for (const version of ["v1alpha1", "v1"]) {
        const request = buildRequest({ apiVersion: `policy.kcloudlabs.io/${version}`, kind, metadata: { name: "p" } });
        assert.deepEqual(listNames([buildClusterPolicy("a")], request), []);
        assert.deepEqual(findValidatePolicies([buildValidatePolicy("a")], request), []);
      }
    const otherGroup = buildRequest({ apiVersion: "policy.kcloudlabs.io.example/v1", kind: "OverridePolicy" });
    assert.deepEqual(listNames([buildClusterPolicy("a")], otherGroup), ["a"]);
  });

  test("a policy index skips what is no policy, but finds policies without a spec or without a list", () => {
    const withoutSpec = { kind: "ClusterOverridePolicy" };
    const withoutList = { kind: "ClusterOverridePolicy", metadata: { name: "b" }, spec: { resourceSelectors: "Pod" } };
    const policies: unknown[] = [
      null,
      "policy",
      {},
      { kind: "ConfigMap", metadata: { name: "c" } },
      { kind: { toString: 1 } },
      withoutSpec,
      withoutList,
      {
        kind: "ClusterOverridePolicy",
        metadata: { name: "c" },
        spec: { resourceSelectors: [null, 1, { apiVersion: {}, kind: [] }] },
      },
    ];
    const found = findOverridePolicies(
      policies as KinitirasPolicy[],
      buildRequest({ ...buildPod("b"), apiVersion: { toString: 1 } as never }),
    );
    assert.deepEqual(found, [withoutSpec, withoutList]);
  });

  test("a policy index is built only once for a list of policies", () => {
    const policies = [buildClusterPolicy("a")];
    assert.equal(buildPolicyIndex(policies), buildPolicyIndex(policies));
    assert.notEqual(buildPolicyIndex(policies), buildPolicyIndex([...policies]));
  });

  test("a policy index finds the same policies as a search through all policies", () => {
    const pickOne = (...texts: string[]) => fc.constantFrom(...texts);
    const kind = { apiVersion: pickOne("v1", "apps/v1"), kind: pickOne("Pod", "Node", "Job") };
    const namespace = fc.option(pickOne("a", "b"), { nil: undefined });
    const labels = fc.dictionary(pickOne("a", "b", "__proto__"), fc.oneof(pickOne("x", "y", ""), fc.constant(1)));
    const expressions = fc.constantFrom([], [{ key: "a", operator: "NotIn", values: ["x"] }]);
    const labelSelector = fc.record({ matchLabels: labels, matchExpressions: expressions }, { requiredKeys: [] });
    const name = fc.oneof(pickOne("p", "q", ""), fc.constantFrom(1, null, undefined));
    const selector = fc.record(
      { ...kind, namespace, name, labelSelector },
      { requiredKeys: ["apiVersion", "kind", "namespace"] },
    );
    const policies = fc.array(fc.tuple(pickOne("a", "b", "c", "d"), fc.array(selector, { maxLength: 3 })));
    fc.assert(
      fc.property(policies, fc.record(kind), labels, namespace, (samples, object, labels, namespace) => {
        const all = samples.map(([name, selectors]) => buildValidatePolicy(name, ...(selectors as ResourceSelector[])));
        const request = buildRequest({ ...object, metadata: { name: "p", labels: labels as never } }, namespace);
        const expected = all
          .filter(({ spec }) => matchesAnySelector(spec.resourceSelectors, request.object, namespace))
          .toSorted((left, right) =>
            left.metadata.name < right.metadata.name ? -1 : Number(left.metadata.name > right.metadata.name),
          );
        const found = findValidatePolicies(all, request);
        assert.equal(found.length, expected.length);
        assert.ok(found.every((policy, index) => policy === expected[index]));
      }),
    );
  });

  test("a policy index reads the selectors of only those policies whose selectors name the kind of the request", () => {
    let readCount = 0;
    const counted = Array.from({ length: 1000 }, (_, index): OverridePolicy => {
      const selector = { apiVersion: "v1", kind: index < 3 ? "Pod" : `Kind${index}` };
      const policy = buildClusterPolicy(`p${String(index).padStart(4, "0")}`);
      const spec = { overrideRules: [] };
      Object.defineProperty(spec, "resourceSelectors", {
        enumerable: true,
        get: () => {
          readCount++;
          return [selector];
        },
      });
      return { ...policy, spec };
    });
    buildPolicyIndex(counted);
    readCount = 0;
    assert.deepEqual(findOverridePolicies(counted, buildRequest(buildPod("b"))).map(getPolicyName), [
      "p0000",
      "p0001",
      "p0002",
    ]);
    assert.ok(readCount <= 10);
  });
});
