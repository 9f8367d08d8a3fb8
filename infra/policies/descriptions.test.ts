import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { parse } from "yaml";
import { findPolicyFaults } from "#lib/policy/checks/faults.ts";
import type { KinitirasPolicy } from "#lib/policy/types.ts";
import { benchPolicyCases } from "../../test/bench/inputs/example-policies.ts";
import { describePolicyRules } from "./descriptions.ts";

const faultlessCases = benchPolicyCases.filter(({ policies }) =>
  policies.every((policy) => findPolicyFaults(policy).length === 0),
);

test("describePolicyRules describes every rule of faultless policies that were evaluated with kinitiras", () => {
  assert.ok(faultlessCases.length > 280, `${faultlessCases.length}`);
  for (const { id, policies } of faultlessCases)
    for (const policy of policies) {
      const rules = policy.kind === "ClusterValidatePolicy" ? policy.spec.validateRules : policy.spec.overrideRules;
      const words = describePolicyRules(policy);
      assert.equal(words.length, rules.length, id);
      for (const sentence of words) {
        assert.match(sentence, /^(On [A-Z, and]+ of|Never, of) .+: .+\.$/, id);
        assert.doesNotMatch(sentence, /undefined|\[object|…/, id);
      }
    }
});

interface Case {
  name: string;
  overriders?: object;
  selectors?: object[];
  condition?: object;
  targetOperations?: string[];
  says: string;
}

const buildPolicy = ({ overriders, selectors, condition, targetOperations }: Omit<Case, "name" | "says">) => {
  const spec = condition
    ? { validateRules: [{ targetOperations, template: { type: "condition", condition } }] }
    : { overrideRules: [{ overriders }], resourceSelectors: selectors };
  return {
    apiVersion: "policy.kcloudlabs.io/v1alpha1",
    kind: condition ? "ClusterValidatePolicy" : "OverridePolicy",
    metadata: { name: "p", namespace: "default" },
    spec,
  } as unknown as KinitirasPolicy;
};

const cases: Case[] = parse(readFileSync(new URL("descriptions.yaml", import.meta.url), "utf8"));
for (const { name, says, ...given } of cases)
  test(`it ${name}`, () => {
    const sentence = says.replace("HERE", "On CREATE and UPDATE of every object in namespace default");
    assert.deepEqual(describePolicyRules(buildPolicy(given)), [sentence]);
  });

test("describePolicyRules cuts long messages", () => {
  const condition = { cond: "Exist", message: "m".repeat(500), dataRef: { from: "current", path: "spec.replicas" } };
  assert.deepEqual(describePolicyRules(buildPolicy({ condition })), [
    `On CREATE, UPDATE and DELETE of every object: denies with "${"m".repeat(116)}... if spec.replicas of the object exists.`,
  ]);
});
