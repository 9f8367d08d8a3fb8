import assert from "node:assert/strict";
import { suite, test } from "node:test";
import { Failure } from "../failure.ts";
import { findFailedPolicy, listPolicyRules, toPolicyFailure } from "./policy-failures.ts";
import type { KinitirasPolicy } from "./types.ts";
import { quoteValue } from "./values/texts.ts";

const policy: KinitirasPolicy = {
  apiVersion: "policy.kcloudlabs.io/v1alpha1",
  kind: "OverridePolicy",
  metadata: { namespace: "team", name: "caps" },
  spec: { overrideRules: [] },
};

suite("a failure of a policy", () => {
  test("a failure of a policy names the policy and the rule and keeps the thrown error", () => {
    const cause = new Error("there is no path");
    const failure = toPolicyFailure(policy, "overrideRules", 2, cause);
    assert.ok(failure instanceof Failure);
    assert.equal(failure.message, "OverridePolicy team/caps, overrideRules[2]: there is no path");
    assert.deepEqual([failure.code, failure.cause], [500, cause]);
    assert.equal(findFailedPolicy(failure), policy);
  });

  test("a failure of a policy keeps the code of a failure", () => {
    assert.equal(toPolicyFailure(policy, "overrideRules", 0, new Failure(503, "it does not answer")).code, 503);
  });

  test("a failure of a policy is created for a policy without a name and for any thrown value", () => {
    const nameless = { kind: "ClusterValidatePolicy", metadata: { name: 5 } } as unknown as KinitirasPolicy;
    const { message } = toPolicyFailure(nameless, "validateRules", 0, "a text");
    assert.equal(message, "ClusterValidatePolicy without a name, validateRules[0]: a text");
    const bare = { kind: "ClusterValidatePolicy" } as KinitirasPolicy;
    assert.equal(
      toPolicyFailure(bare, "validateRules", 0, null).message,
      "ClusterValidatePolicy without a name, validateRules[0]: null",
    );
  });

  test("a failure of a policy names its policy, while other errors have no policy", () => {
    for (const value of [new Failure(500, "a"), new Error("a"), "a", null])
      assert.equal(findFailedPolicy(value), undefined);
  });

  test("a failure of a policy is thrown if the rules can't be read", () => {
    const invalidPolicy = { ...policy, spec: { overrideRules: [{}, 1] } } as unknown as KinitirasPolicy;
    try {
      listPolicyRules(invalidPolicy, "overrideRules");
      assert.fail("the rules can be read");
    } catch (error) {
      assert.equal(String(error), "Error: OverridePolicy team/caps: spec.overrideRules[1] must be an object");
      assert.equal(findFailedPolicy(error), invalidPolicy);
    }
  });
});

suite("a value in a sentence", () => {
  const values: [value: unknown, text: string][] = [
    ["web", '"web"'],
    ['a"b', '"a\\"b"'],
    ["a".repeat(100), `"${"a".repeat(80)}"…`],
    [5, "5"],
    [true, "true"],
    [undefined, "undefined"],
    [null, "null"],
    [["a"], "a list"],
    [{ a: 1 }, "an object"],
  ];
  for (const [value, text] of values)
    test(`is quoted as ${text.slice(0, 20)}`, () => assert.equal(quoteValue(value), text));
});
