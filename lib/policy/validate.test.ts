import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { suite, test } from "node:test";
import { parse } from "yaml";
import { createPolicyCaseCapabilities } from "../../test/bench/inputs/example-policies.ts";
import { Failure } from "../failure.ts";
import type { KinitirasPolicy, PolicyCapabilities, PolicyCondition, PolicyRequest, ValidatePolicy } from "./types.ts";
import { evaluateValidatePolicies } from "./validate.ts";

const buildCondition = (fields: Partial<PolicyCondition>): PolicyCondition => {
  return { cond: "Exist", dataRef: { from: "current", path: "/spec/a" }, message: "has a", ...fields };
};
const buildRule = (
  fields: Partial<PolicyCondition>,
  ...targetOperations: string[]
): ValidatePolicy["spec"]["validateRules"][number] => {
  return { targetOperations, template: { type: "condition", condition: buildCondition(fields) } };
};
const buildPolicy = (name: string, ...validateRules: ValidatePolicy["spec"]["validateRules"]): ValidatePolicy => {
  const apiVersion = "policy.kcloudlabs.io/v1alpha1";
  return { apiVersion, kind: "ClusterValidatePolicy", metadata: { name }, spec: { validateRules } };
};
const thing = { apiVersion: "example.io/v1", kind: "Thing", metadata: { name: "x", namespace: "b" }, spec: { a: 1 } };
const creation: PolicyRequest = { operation: "CREATE", object: thing, namespace: "b" };
const capabilities = createPolicyCaseCapabilities();

const validate = async (
  policies: KinitirasPolicy[],
  request = creation,
  givenCapabilities: PolicyCapabilities = capabilities,
) => {
  const { denied, matched } = await evaluateValidatePolicies(policies, request, givenCapabilities);
  return {
    denied: denied && [denied.policy.metadata.name, denied.rule, denied.reason],
    matched: matched.map(({ policy, rejected }) => [policy.metadata.name, rejected]),
  };
};

suite("validate policies", () => {
  const hit = buildRule({});
  const miss = buildRule({ cond: "NotExist" });

  test("validate policies are evaluated in the order of their names until one policy refuses", async () => {
    assert.deepEqual(
      await validate([buildPolicy("d", hit), buildPolicy("c", miss, hit), buildPolicy("a"), buildPolicy("b", miss)]),
      {
        denied: ["c", 1, "has a"], // the policy, the index of its rule and the reason
        matched: [
          ["a", false], // a matched policy, and whether its rules refuse
          ["b", false],
          ["c", true],
        ],
      },
    );
  });

  test("validate policies admit a request that none of them refuses", async () => {
    assert.deepEqual(await validate([buildPolicy("a", miss)]), { denied: undefined, matched: [["a", false]] });
  });

  test("validate policies refuse a request that doesn't meet the condition in allow mode", async () => {
    const { denied } = await validate([
      buildPolicy("a", buildRule({ affectMode: "allow" }), buildRule({ affectMode: "allow", cond: "NotExist" })),
    ]);
    assert.deepEqual(denied, ["a", 1, "has a"]);
  });

  test("validate policies can refuse without a reason", async () => {
    const { denied } = await validate([buildPolicy("a", buildRule({ message: undefined as never }))]);
    assert.deepEqual(denied, ["a", 0, ""]);
  });

  test("validate policies use a message as plain text", async () => {
    const message = '"\\(object.metadata.name)\n{{metadata.name}}';
    assert.deepEqual((await validate([buildPolicy("a", buildRule({ message }))])).denied, ["a", 0, message]);
  });

  test("validate policies evaluate only rules for the request's operation, but count as matched anyway", async () => {
    const policies = [buildPolicy("a", buildRule({}, "DELETE", "UPDATE"))];
    assert.deepEqual(await validate(policies), { denied: undefined, matched: [["a", false]] });
    assert.deepEqual((await validate(policies, { ...creation, operation: "DELETE" })).denied, ["a", 0, "has a"]);
  });

  test("validate policies are not evaluated for CONNECT", async () => {
    assert.deepEqual(await validate([buildPolicy("a", buildRule({}, "*"))], { ...creation, operation: "CONNECT" }), {
      denied: undefined,
      matched: [],
    });
  });

  test("validate policies are not evaluated for a request whose object is a policy", async () => {
    const request = { ...creation, object: { ...buildPolicy("a"), spec: { a: 1 } } };
    assert.deepEqual(await validate([buildPolicy("a", hit)], request), { denied: undefined, matched: [] });
  });

  test("conditions prefer valueRef to value, and ignore both members if cond is Exist", async () => {
    const valueRef = { from: "current", path: "/spec/a" } as const;
    const value = { integer: 2 };
    const { denied } = await validate([buildPolicy("a", buildRule({ cond: "Equal", valueRef, value }))]);
    assert.deepEqual(denied, ["a", 0, "has a"]);
    const invalidRef = { from: "k8s", path: "a" } as const;
    const withExist = await validate([buildPolicy("a", buildRule({ cond: "Exist", valueRef: invalidRef }))]);
    assert.deepEqual(withExist.denied, ["a", 0, "has a"]);
  });

  test("a condition resolves both references in parallel, and reports the failure of dataRef", async () => {
    const urls: string[] = [];
    const fetch: PolicyCapabilities["fetchReference"] = async ({ url }) => {
      urls.push(url);
      await new Promise((resolve) => setImmediate(resolve));
      throw new Error(`${url} fails after ${urls.length}`);
    };
    const buildReference = (url: string) => ({ from: "http", path: "a", http: { url } }) as const;
    const policyRule = buildRule({
      cond: "Equal",
      dataRef: buildReference("http://a"),
      valueRef: buildReference("http://b"),
    });
    await assert.rejects(
      validate([buildPolicy("a", policyRule)], creation, { ...capabilities, fetchReference: fetch }),
      {
        message: /http:\/\/a fails after 2$/,
      },
    );
  });

  const failures: { name: string; rules: unknown; message: string }[] = parse(
    readFileSync(new URL("failures.yaml", import.meta.url), "utf8"),
  ).validate;
  for (const { name, rules, message } of failures)
    test(`fail for ${name}`, async () => {
      const policy = { ...buildPolicy("a"), spec: { validateRules: rules } } as ValidatePolicy;
      const prefix = message.startsWith("ClusterValidatePolicy") ? "" : "ClusterValidatePolicy a, validateRules[0]: ";
      await assert.rejects(validate([policy]), { name: "Error", code: 500, message: `${prefix}${message}` });
    });

  test("validate policies fail if their selectors or their spec can't be read", async () => {
    const policy = {
      ...buildPolicy("a", hit),
      spec: { resourceSelectors: "Pod", validateRules: [hit] },
    } as unknown as KinitirasPolicy;
    await assert.rejects(validate([policy]), {
      message: "ClusterValidatePolicy a: spec.resourceSelectors must be a list of selectors",
    });
    const list = { ...buildPolicy("a", hit), spec: "none" } as unknown as KinitirasPolicy;
    await assert.rejects(validate([list]), { message: "ClusterValidatePolicy a: spec must be an object" });
  });

  test("validate policies refuse nothing if they have no rules", async () => {
    for (const spec of [undefined, null, {}, { validateRules: null }, { validateRules: [] }, { validateRules: [{}] }]) {
      const policy = { ...buildPolicy("a"), spec } as unknown as KinitirasPolicy;
      assert.deepEqual(await validate([policy]), { denied: undefined, matched: [["a", false]] });
    }
  });

  test("validate policies keep the code and the cause of a failure", async () => {
    const late = new Failure(504, "the cluster did not answer in time");
    const get: PolicyCapabilities["get"] = async () => {
      throw late;
    };
    const dataRef = { from: "k8s", path: "a", k8s: { apiVersion: "v1", kind: "Pod", name: "a" } } as const;
    await assert.rejects(validate([buildPolicy("a", buildRule({ dataRef }))], creation, { ...capabilities, get }), {
      code: 504,
      message: "ClusterValidatePolicy a, validateRules[0]: the cluster did not answer in time",
      cause: late,
    });
  });
});
