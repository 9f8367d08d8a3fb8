import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { lookUp } from "postern/json";
import { applyOutcomePatch, openRule } from "postern/test";

const { entries: listWebhooks, decideCase } = await openRule(import.meta.dirname);

const apiVersion = "admissionregistration.k8s.io/v1";
const configmaps = { apiGroups: [""], apiVersions: ["v1"], resources: ["configmaps"] };
const buildMutation = (expression: string) => ({ patchType: "JSONPatch", jsonPatch: { expression } });
const appending = buildMutation(`[JSONPatch{op: "add", path: "/data/a", value: object.data.a + "x"}]`);
const buildPolicy = (name: string, spec: object) => ({
  apiVersion,
  kind: "MutatingAdmissionPolicy",
  metadata: { name },
  spec: {
    matchConstraints: { resourceRules: [{ ...configmaps, operations: ["*"] }] },
    mutations: [appending],
    reinvocationPolicy: "IfNeeded",
    ...spec,
  },
});
const buildBinding = (policyName: string, spec: object = {}) => ({
  apiVersion,
  kind: "MutatingAdmissionPolicyBinding",
  metadata: { name: policyName },
  spec: { policyName, ...spec },
});
const listEntries = (...policies: object[]) => listWebhooks({ exempt: { namespaces: [] }, settings: { policies } });

describe("the webhook entry of a policy", () => {
  it("an entry matches all operations except DELETE, and has its policy's reinvocationPolicy", () => {
    const [first, second] = listEntries(
      buildPolicy("a", {}),
      buildBinding("a"),
      buildPolicy("b", { reinvocationPolicy: "Never" }),
      buildBinding("b"),
    );
    assert.deepEqual(first?.rules, [{ ...configmaps, operations: ["CREATE", "UPDATE", "CONNECT"], scope: "*" }]);
    assert.deepEqual([first?.reinvocationPolicy, second?.reinvocationPolicy], ["IfNeeded", "Never"]);
  });

  it("an entry has its policy's matchConditions only if the API server handles their errors as the rule does", () => {
    const matchConditions = [{ name: "has-a", expression: "has(object.data.a)" }];
    const listConditions = (spec: object, binding: object) =>
      listEntries(buildPolicy("a", { matchConditions, ...spec }), buildBinding("a", binding))[0]?.matchConditions;
    assert.deepEqual(listConditions({}, {}), matchConditions);
    // With matchResources, an error in the entry's conditions would even refuse requests that the binding skips.
    assert.equal(listConditions({}, { matchResources: {} }), undefined);
    assert.deepEqual(listConditions({ failurePolicy: "Ignore" }, { matchResources: {} }), matchConditions);
  });

  it("an entry that fails open has no matchConditions if its policy fails closed", () => {
    const matchConditions = [{ name: "has-a", expression: "has(object.data.a)" }];
    const policies = [buildPolicy("a", { matchConditions }), buildBinding("a")];
    for (const config of [{ failurePolicy: "Ignore" }, { mode: "warn" }, { mode: "audit" }])
      assert.equal(listWebhooks({ ...config, settings: { policies } })[0]?.matchConditions, undefined);
  });
});

describe("policies that change an object whenever they are applied", () => {
  /** Applies policies with these specs to the text "". By default, each appends x, with reinvocationPolicy IfNeeded. */
  const apply = async (...specs: object[]) => {
    const policies = specs.flatMap((spec, index) => [buildPolicy(`p${index}`, spec), buildBinding(`p${index}`)]);
    const mutate = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "c", namespace: "n" }, data: { a: "" } };
    const { outcome } = await decideCase({ name: "appends", mutate, settings: { policies } });
    return lookUp(applyOutcomePatch(mutate, outcome), ["data", "a"])?.value;
  };
  const appendingY = [buildMutation(`[JSONPatch{op: "add", path: "/data/a", value: object.data.a + "y"}]`)];

  it("policies with reinvocationPolicy IfNeeded run twice", async () => assert.equal(await apply({}), "xx"));

  it("policies are applied once if their reinvocationPolicy is Never", async () =>
    assert.equal(await apply({ reinvocationPolicy: "Never" }), "x"));

  it("policies are applied in order, and then those with reinvocationPolicy IfNeeded once more", async () => {
    assert.equal(await apply({}, { mutations: appendingY }), "xyxy");
    assert.equal(await apply({}, { mutations: appendingY, reinvocationPolicy: "Never" }), "xyx");
  });

  it("policies are not applied in the second round if their conditions were false in the first round", async () => {
    const matchConditions = [{ name: "has-x", expression: "object.data.a != ''" }];
    assert.equal(await apply({ mutations: appendingY, matchConditions }, {}), "xx");
  });
});

describe("an ApplyConfiguration for a kind without a known schema", () => {
  const merge = (failurePolicy: string, apiVersion: string, kind: string) => {
    const merging = { patchType: "ApplyConfiguration", applyConfiguration: { expression: "Object{}" } };
    const everything = [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*"], operations: ["*"] }];
    const spec = { failurePolicy, mutations: [merging], matchConstraints: { resourceRules: everything } };
    const mutate = { apiVersion, kind, metadata: { name: "c", namespace: "n" } };
    return decideCase({
      name: "merges",
      mutate,
      settings: { policies: [buildPolicy("a", spec), buildBinding("a")] },
    });
  };
  const failure = (reason: string) => {
    return { name: "Error", code: 500, message: `an ApplyConfiguration can't be merged into a ${reason}` };
  };

  for (const failurePolicy of ["Fail", "Ignore"])
    it(`is a failure, not a refusal, with failurePolicy ${failurePolicy}`, async () => {
      await assert.rejects(
        merge(failurePolicy, "example.com/v1", "Widget"),
        failure("Widget of example.com/v1, because no CustomResourceDefinition among the policies has its schema"),
      );
      await assert.rejects(
        merge(failurePolicy, "apps/v9", "Deployment"),
        failure("Deployment of apps/v9, because Postern knows no schemas of apps/v9"),
      );
    });
});
