import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import fc from "fast-check";
import { parse } from "yaml";
import { benchPolicyCases } from "../../../test/bench/inputs/example-policies.ts";
import { findPolicyFaults } from "./faults.ts";
import { findPolicyWarnings } from "./warnings.ts";

/** The part of a policy that a case in cases.yaml states. The rest of the policy is the same in all cases. */
interface Given {
  policy?: unknown;
  namespace?: string;
  selectors?: object[];
  rule?: object;
  overriders?: object;
  template?: object;
  http?: object;
  validateRule?: object;
  condition?: object;
}
interface Case extends Given {
  name: string;
  faults?: string | string[];
  warnings?: string | string[];
}

const buildPolicy = ({ namespace, selectors = [{ apiVersion: "v1", kind: "Pod" }], ...fields }: Given) => {
  const { http, overriders = { cue: "patches: []" }, condition } = fields;
  const valueRef = { from: "http", path: "a", http };
  const template = fields.template ?? (http && { type: "labels", operation: "add", path: "a", valueRef });
  const rule = fields.rule ?? { overriders: template ? { template } : overriders };
  const message = { message: "no", dataRef: { from: "current", path: "a" } };
  const validateRule =
    fields.validateRule ?? (condition && { template: { type: "condition", condition: { ...message, ...condition } } });
  const overrideKind = namespace === undefined ? "ClusterOverridePolicy" : "OverridePolicy";
  return {
    apiVersion: "policy.kcloudlabs.io/v1alpha1",
    kind: validateRule ? "ClusterValidatePolicy" : overrideKind,
    metadata: { name: "p", ...(namespace && { namespace }) },
    spec: {
      resourceSelectors: selectors,
      ...(validateRule ? { validateRules: [validateRule] } : { overrideRules: [rule] }),
    },
  };
};

/** A case gives one part of a policy, such as a condition. Returns the path at which buildPolicy puts this part. */
const findPartPath = ({ selectors, rule, template, http, overriders, validateRule, condition }: Given): string => {
  if (rule) return "spec.overrideRules[0]";
  if (http) return "spec.overrideRules[0].overriders.template.valueRef.http";
  if (template) return "spec.overrideRules[0].overriders.template";
  if (overriders) return "spec.overrideRules[0].overriders";
  if (condition) return "spec.validateRules[0].template.condition";
  return validateRule ? "spec.validateRules[0]" : selectors ? "spec.resourceSelectors[0]" : "";
};
/** The words of a warning about a field with a secret, after the field's path. */
const readableSecretWarning =
  "can be read by every user with the right to read policies; keep it in a secret store and name it in the setting http.credentials";

// In the expected sentences of cases.yaml, AT stands for the path of the part of a policy that the case gives, and
// READABLE for the words of the warning about a secret that users can read.
const cases: Case[] = parse(readFileSync(new URL("cases.yaml", import.meta.url), "utf8"));
for (const { name, faults, warnings, ...fields } of cases)
  test(`it ${name}`, () => {
    const policy = fields.policy ?? buildPolicy(fields);
    const found = faults === undefined ? findPolicyWarnings(policy) : findPolicyFaults(policy);
    const expected = [faults ?? warnings ?? []].flat();
    assert.deepEqual(
      found,
      expected.map((text) => text.replace(/\bAT\b/g, findPartPath(fields)).replace("READABLE", readableSecretWarning)),
    );
  });

test("findPolicyWarnings returns warnings about the example policies as sentences that begin with the field", () => {
  for (const policy of benchPolicyCases.flatMap(({ policies }) => policies))
    for (const warning of findPolicyWarnings(policy)) assert.match(warning, /^spec\.\S+ \w/);
});

test("findPolicyFaults reports a limited number of short faults for large and deeply nested policies", () => {
  const nested = JSON.parse(`${"[".repeat(200_000)}${"]".repeat(200_000)}`);
  assert.deepEqual(
    findPolicyFaults(buildPolicy({ overriders: { plaintext: [{ path: "/a", op: "add", value: nested }] } })),
    ["the policy is nested too deeply"],
  );
  assert.equal(findPolicyFaults(buildPolicy({ overriders: { plaintext: Array(100_000).fill({}) } })).length, 50);
  assert.ok(findPolicyFaults(buildPolicy({ overriders: { ["k".repeat(1_000_000)]: 1 } })).join().length < 500);
  const tolerations = Array(50_000).fill({ key: "!".repeat(1_000) });
  const origin = [{ type: "tolerations", operation: "add", tolerations }];
  assert.ok(findPolicyFaults(buildPolicy({ overriders: { origin } })).join().length < 200_000);
});

const policyWords = fc.constantFrom(
  "spec",
  "metadata",
  "overrideRules",
  "overriders",
  "template",
  "type",
  "annotations",
  "operation",
  "add",
  "origin",
  "tolerations",
  "value",
  "valueRef",
  "validateRules",
  "condition",
  "cond",
  "In",
  "path",
  "http",
  "url",
  "k8s",
  "labelSelector",
  "matchExpressions",
  "__proto__",
  "constructor",
);
const { json } = fc.letrec((tie) => ({
  json: fc.oneof(
    { depthSize: "medium", withCrossShrink: true },
    fc.constantFrom(null, true, 0, -1.5, ""),
    policyWords,
    fc.array(tie("json"), { maxLength: 3 }),
    fc.array(fc.tuple(policyWords, tie("json")), { maxLength: 5 }).map((entries) => Object.fromEntries(entries)),
  ),
}));

test("findPolicyFaults and findPolicyWarnings return sentences for any JSON", () => {
  const kind = fc.constantFrom("OverridePolicy", "ClusterOverridePolicy", "ClusterValidatePolicy");
  const policy = fc.oneof(
    json,
    fc.record({
      apiVersion: fc.constant("policy.kcloudlabs.io/v1alpha1"),
      kind,
      metadata: fc.constant({ name: "a", namespace: "b" }),
      spec: json,
    }),
    json.map((value) => buildPolicy({ overriders: { template: value, origin: [value] } })),
    json.map((value) => buildPolicy({ condition: Object(value) })),
    json.map((value) => {
      const parts = { tolerations: value, affinity: value, value, valueRef: value };
      return buildPolicy({ template: { type: "tolerations", operation: "add", ...parts } });
    }),
  );
  fc.assert(
    fc.property(policy, (value) => {
      const faults = [...findPolicyFaults(value), ...findPolicyWarnings(value)];
      assert.ok(faults.every((fault) => typeof fault === "string" && fault.length > 10));
    }),
    { numRuns: 2000 },
  );
});

test("findPolicyFaults and findPolicyWarnings return sentences for the example policies with one value replaced", () => {
  const policies = benchPolicyCases.flatMap(({ policies }) => policies);
  fc.assert(
    fc.property(fc.nat(policies.length - 1), fc.nat(), json, (policyIndex, placeIndex, newValue) => {
      const policy = structuredClone(policies[policyIndex]);
      const places: [object, string][] = [];
      const walk = (value: unknown) => {
        if (typeof value !== "object" || value === null) return;
        for (const key of Object.keys(value)) {
          places.push([value, key]);
          walk(Reflect.get(value, key));
        }
      };
      walk(policy?.spec);
      const [holder, key] = places[placeIndex % places.length] ?? [{}, ""];
      Reflect.set(holder, key, newValue);
      assert.ok([...findPolicyFaults(policy), ...findPolicyWarnings(policy)].every((fault) => fault.length > 10));
    }),
    { numRuns: 2000 },
  );
});
