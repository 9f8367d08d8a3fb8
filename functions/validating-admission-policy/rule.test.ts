import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { getVariantName } from "postern/admission-policies/policies";
import { openRule } from "postern/test";

const { entries } = await openRule(import.meta.dirname);

const apiVersion = "admissionregistration.k8s.io/v1";
const rules = [{ apiGroups: ["apps"], apiVersions: ["v1"], resources: ["deployments"], operations: ["*"] }];
const isSmall = { name: "is-small", expression: "object.spec.replicas < 5" };
const paramKind = { apiVersion: "v1", kind: "ConfigMap" };
const buildPolicy = (name: string, spec: object) => ({
  apiVersion,
  kind: "ValidatingAdmissionPolicy",
  metadata: { name },
  spec: { matchConstraints: { resourceRules: rules }, validations: [{ expression: "true" }], ...spec },
});
const buildBinding = (policyName: string, spec: object = {}) => ({
  apiVersion,
  kind: "ValidatingAdmissionPolicyBinding",
  metadata: { name: policyName },
  spec: { policyName, validationActions: ["Deny"], ...spec },
});
const listEntries = (...policies: object[]) => entries({ exempt: { namespaces: [] }, settings: { policies } });

describe("the webhook entry of a policy", () => {
  it("the webhook entry of a policy has the policy's rules, selectors and policies", () => {
    const namespaceSelector = { matchLabels: { stage: "test" } };
    const objectSelector = { matchLabels: { app: "web" } };
    const resourceRules = [{ ...rules[0], resourceNames: ["web"], scope: "Namespaced" }];
    const matchConstraints = { namespaceSelector, objectSelector, matchPolicy: "Exact", resourceRules };
    const [entry] = listEntries(buildPolicy("a", { matchConstraints }), buildBinding("a"));
    assert.equal(entry?.name, "a.validating-admission-policy.postern.dev");
    assert.deepEqual(entry?.rules, [{ ...rules[0], scope: "Namespaced" }]);
    assert.deepEqual([entry?.namespaceSelector, entry?.objectSelector], [namespaceSelector, objectSelector]);
    assert.deepEqual([entry?.matchPolicy, entry?.failurePolicy], ["Exact", "Fail"]);
  });

  it("an entry fails closed only if its policy does, and postern.yaml sets neither Ignore nor warn", () => {
    const list = (failurePolicy: string, config: object) => {
      const policies = [buildPolicy("a", { failurePolicy }), buildBinding("a")];
      return entries({ ...config, settings: { policies } })[0]?.failurePolicy;
    };
    const configs = [{}, { failurePolicy: "Fail" }, { failurePolicy: "Ignore" }, { mode: "warn" }];
    assert.deepEqual(
      configs.map((config) => list("Fail", config)),
      ["Fail", "Fail", "Ignore", "Ignore"],
    );
    assert.deepEqual(
      configs.map((config) => list("Ignore", config)),
      ["Ignore", "Ignore", "Ignore", "Ignore"],
    );
  });

  it("the webhook entry of a policy exists only if the policy has a binding", () => {
    const [only, ...others] = listEntries(buildPolicy("a", {}), buildPolicy("b", {}), buildBinding("b"));
    assert.deepEqual([only?.name, others], ["b.validating-admission-policy.postern.dev", []]);
  });

  it("an entry has its policy's matchConditions only if the API server handles their errors as the rule does", () => {
    const conditions = (spec: object, ...bindings: object[]) =>
      listEntries(buildPolicy("a", { matchConditions: [isSmall], ...spec }), ...bindings)[0]?.matchConditions;
    assert.deepEqual(conditions({}, buildBinding("a")), [isSmall]);
    assert.equal(conditions({}, buildBinding("a", { validationActions: ["Warn"] })), undefined);
    assert.equal(conditions({}, buildBinding("a", { matchResources: {} })), undefined);
    assert.equal(conditions({ paramKind }, buildBinding("a")), undefined);
  });

  it("an entry that fails open has no matchConditions if its policy fails closed", () => {
    const list = (failurePolicy: string, config: object) => {
      const policies = [buildPolicy("a", { failurePolicy, matchConditions: [isSmall] }), buildBinding("a")];
      return entries({ ...config, settings: { policies } })[0]?.matchConditions;
    };
    for (const config of [{ failurePolicy: "Ignore" }, { mode: "warn" }, { mode: "audit" }]) {
      assert.equal(list("Fail", config), undefined);
      assert.deepEqual(list("Ignore", config), [isSmall]);
    }
  });

  it("an entry has the conditions of exemptions and of its policy, even with the same names", () => {
    const matchConditions = ["user-is-not-exempt", "groups-are-not-exempt"].map((name) => ({ ...isSmall, name }));
    const policies = [buildPolicy("a", { matchConditions }), buildBinding("a")];
    const [entry] = entries({ exempt: { users: ["root"], groups: ["admins"] }, settings: { policies } });
    assert.deepEqual(
      entry?.matchConditions?.map(({ name, expression }) => [name, expression === isSmall.expression]),
      [
        ["postern.dev/user-is-not-exempt", false],
        ["postern.dev/groups-are-not-exempt", false],
        ["user-is-not-exempt", true],
        ["groups-are-not-exempt", true],
      ],
    );
  });

  it("an entry has only matchConditions without parameters if its policy ignores failures", () => {
    const hasParams = { name: "has-params", expression: "params != null" };
    const policy = buildPolicy("a", { paramKind, failurePolicy: "Ignore", matchConditions: [hasParams, isSmall] });
    const [entry] = listEntries(policy, buildBinding("a", { validationActions: ["Warn"] }));
    assert.deepEqual(entry?.matchConditions, [isSmall]);
  });

  it("the webhook entry of a policy has no conditions with functions that older clusters lack", () => {
    const newer = ["[3, 1].sort() == [1, 3]", "isSemver('1.0.0')"].map((expression, index) => {
      return { name: `newer-${index}`, expression };
    });
    const [entry] = listEntries(buildPolicy("a", { matchConditions: [...newer, isSmall] }), buildBinding("a"));
    assert.deepEqual(entry?.matchConditions, [isSmall]);
  });

  it("the webhook entry of a policy has a valid name, which differs for different policies", () => {
    assert.equal(getVariantName("a-1"), "a-1");
    for (const name of ["validate", "a.b", "a".repeat(64), `${"a".repeat(49)}-.b`])
      assert.match(getVariantName(name), /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/);
    assert.notEqual(getVariantName("a.b"), getVariantName("a.b.c"));
  });
});
