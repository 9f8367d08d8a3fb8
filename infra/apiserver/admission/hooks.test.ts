import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readRows } from "../../../test/rows.ts";
import { parseWebhookConfigurations } from "./hooks.ts";

const buildEntry = (fields: object = {}) => {
  return {
    name: "a.example.com",
    clientConfig: { url: "https://127.0.0.1:1/a" },
    rules: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }],
    sideEffects: "None",
    admissionReviewVersions: ["v1"],
    ...fields,
  };
};
const buildConfiguration = (name: string, webhooks: unknown[], kind = "MutatingWebhookConfiguration") => {
  return { apiVersion: "admissionregistration.k8s.io/v1", kind, metadata: { name }, webhooks };
};

const { broken, warned } = readRows<{
  broken: { what: string; manifest?: unknown; entry?: object; rule?: object; kubernetes?: string; fault: string }[];
  warned: { what: string; name?: string; rule?: object; kubernetes?: string; warnings: string[] }[];
}>(import.meta.filename);

describe("hooks", () => {
  it("webhooks are in the order of their configurations' names, with the API server's defaults", () => {
    const { mutating, validating, faults } = parseWebhookConfigurations([
      buildConfiguration("b", [buildEntry({ name: "z.example.com" }), buildEntry()]),
      buildConfiguration("10", [buildEntry()]),
      buildConfiguration("9", [buildEntry()], "ValidatingWebhookConfiguration"),
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

  for (const {
    what,
    entry: entryFields = {},
    rule,
    kubernetes,
    manifest = buildConfiguration("a", [buildEntry(rule ? { rules: [rule] } : entryFields)]),
    fault,
  } of broken)
    it(`are not read from a configuration with ${what}`, () => {
      const { mutating, faults } = parseWebhookConfigurations([manifest], kubernetes);
      assert.equal(mutating.length, 0);
      assert.ok(faults.join("\n").includes(fault), faults.join("\n"));
    });

  for (const { what, name = "a", rule, kubernetes, warnings: expected } of warned)
    it(`are read ${expected.length > 0 ? "with" : "without"} a warning from a configuration with ${what}`, () => {
      const manifest = buildConfiguration(name, [buildEntry(rule && { rules: [rule] })]);
      const { mutating, faults, warnings } = parseWebhookConfigurations([manifest], kubernetes);
      assert.deepEqual([mutating.length, faults], [1, []]);
      assert.deepEqual(
        warnings,
        expected.map((warning) => `MutatingWebhookConfiguration "${name}": ${warning}`),
      );
    });
});
