import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { hooksIn } from "./hooks.ts";

const entry = (more: object = {}) => {
  return {
    name: "a.example.com",
    clientConfig: { url: "https://127.0.0.1:1/a" },
    rules: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }],
    sideEffects: "None",
    admissionReviewVersions: ["v1"],
    ...more,
  };
};
const configuration = (name: string, webhooks: unknown[], kind = "MutatingWebhookConfiguration") => {
  return { apiVersion: "admissionregistration.k8s.io/v1", kind, metadata: { name }, webhooks };
};

const rule = (more: object) => configuration("a", [entry({ rules: [{ ...entry().rules[0], ...more }] })]);

describe("hooks", () => {
  it("stand in the order of their configurations' names, each with what the API server fills in", () => {
    const { mutating, validating, faults } = hooksIn([
      configuration("b", [entry({ name: "z.example.com" }), entry()]),
      configuration("10", [entry()]),
      configuration("9", [entry()], "ValidatingWebhookConfiguration"),
    ]);
    assert.deepEqual(faults, []);
    assert.deepEqual(
      mutating.map(({ identity }) => identity),
      ["10/a.example.com/0", "b/z.example.com/0", "b/a.example.com/0"],
    );
    assert.equal(validating.length, 1);
    const [{ failurePolicy, matchPolicy, reinvocationPolicy, timeoutSeconds, rules } = assert.fail()] = mutating;
    assert.deepEqual(
      [failurePolicy, matchPolicy, reinvocationPolicy, timeoutSeconds, rules[0]?.scope],
      ["Fail", "Equivalent", "Never", 10, "*"],
    );
  });

  const broken: [string, unknown, RegExp][] = [
    ["what is no configuration", { kind: "Pod" }, /^configuration 1 is neither a /],
    ["null", null, /^configuration 1 is neither/],
    ["another version", { ...configuration("a", []), apiVersion: "v1" }, /apiVersion must be/],
    ["a list that is none", configuration("a", "b" as never), /webhooks must be a list/],
    ["an entry that is none", configuration("a", [1]), /webhooks\[0\] must be an object/],
    ["a short name", configuration("a", [entry({ name: "a.b" })]), /at least three segments/],
    ["a name twice", configuration("a", [entry(), entry()]), /webhooks\[1\]\.name: Duplicate value/],
    ["no versions of reviews", configuration("a", [entry({ admissionReviewVersions: [] })]), /must specify one of/],
    ["unknown ones", configuration("a", [entry({ admissionReviewVersions: ["v7"] })]), /must include at least one/],
    ["no side effects", configuration("a", [entry({ sideEffects: undefined })]), /sideEffects: Required value/],
    ["too long a timeout", configuration("a", [entry({ timeoutSeconds: 31 })]), /between 1 and 30/],
    ["another policy", configuration("a", [entry({ failurePolicy: "Maybe" })]), /Unsupported value: "Maybe"/],
    ["a selector that is none", configuration("a", [entry({ objectSelector: { matchLabels: 1 } })]), /label selector/],
    ["plain HTTP", configuration("a", [entry({ clientConfig: { url: "http://a" } })]), /only allowed URL scheme/],
    ["a query", configuration("a", [entry({ clientConfig: { url: "https://a?b" } })]), /query parameters/],
    ["nowhere to call", configuration("a", [entry({ clientConfig: {} })]), /exactly one of url or service/],
    ["an operation beside all", rule({ operations: ["*", "CREATE"] }), /must not specify other operations/],
    ["resources beside all", rule({ resources: ["*/*", "pods"] }), /must not specify other resources/],
    ["a subresource beside all of them", rule({ resources: ["pods/*", "pods/exec"] }), /must not specify pods\/exec/],
    ["a condition without a name", configuration("a", [entry({ matchConditions: [{}] })]), /name: Required value/],
    ["names from everybody's prototype", configuration("constructor", [{ ["__proto__"]: 1 }]), /name: Required value/],
  ];
  for (const [what, manifest, expected] of broken)
    it(`are not taken from a configuration with ${what}`, () => {
      const { mutating, faults } = hooksIn([manifest]);
      assert.equal(mutating.length, 0);
      assert.match(faults.join("\n"), expected);
    });
});
