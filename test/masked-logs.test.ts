import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { createUnconnectedCapabilities } from "#lib/core/capabilities.ts";
import type { AnsweredReviewFacts } from "#lib/core/log-line.ts";
import { formatLogLine } from "#lib/core/log-line.ts";
import { createLambdaHandler } from "#lib/lambda/handler.ts";
import overrideRule from "../functions/policy-override/rule.ts";
import validateRule from "../functions/policy-validate/rule.ts";

/** CUE scripts whose error messages show a text, a number or a key of the reviewed object, by what they show. */
const scripts: Record<string, string> = {
  "a conflict of texts": 'a: object.data.text & "other"',
  "a conflict of numbers": "a: object.data.number & string",
  "a conflict with an expression": 'a: object.data.text & =~"^none$"',
  "a limit": "a: object.data.number & <5",
  "a number in a text": 'import "strconv"\na: strconv.Atoi(object.data.text)',
  JSON: 'import "encoding/json"\na: json.Unmarshal(object.data.text)',
  YAML: 'import "encoding/yaml"\na: yaml.Unmarshal("- {\\(object.data.text)")',
  base64: 'import "encoding/base64"\na: base64.Decode(null, object.data.text)',
  "an expression": 'import "regexp"\na: regexp.Match("(\\(object.data.text)", "a")',
  "a time": 'import "time"\na: time.Parse("2006", object.data.text)',
  "a member": "a: object.data[object.data.text]",
  "a sum": "a: object.data.text + object.data.number",
  "the object": 'a: object & {data: "none"}',
};

/** For each phase, the field of a policy that has the policy's rules, and the kind of the policy. */
const policyTypes = {
  validate: ["validateRules", "ClusterValidatePolicy"],
  mutate: ["overrideRules", "ClusterOverridePolicy"],
};

describe("the log line of a review for which a script fails", () => {
  for (const [name, cue] of Object.entries(scripts))
    for (const phase of ["validate", "mutate"] as const)
      it(`the log line has no value of the object if CUE's message shows ${name} (${phase})`, async () => {
        const [rulesField = "", kind] = policyTypes[phase];
        // The script fails in its line `a: …`. It needs a declaration of `object` before this line and, after it, the
        // fields that a policy reads from its script, `validate` or `patches`. Their values use `a`.
        const script = cue.replace(
          /a: .*$/,
          (failingLine) => `object: _ @tag(object)\n${failingLine}\nvalidate: valid: a == a\npatches: [a]`,
        );
        const rule = {
          targetOperations: ["CREATE"],
          ...(phase === "validate" ? { cue: script } : { overriders: { cue: script } }),
        };
        const apiVersion = "policy.kcloudlabs.io/v1alpha1";
        const policy = { apiVersion, kind, metadata: { name: "failing" }, spec: { [rulesField]: [rule] } };
        const settings = { policies: [policy] };
        let written = "";
        const handler = createLambdaHandler(
          {
            rules: { sample: phase === "validate" ? validateRule : overrideRule },
            config: { rule: "sample", clusters: {} },
          },
          {
            publicKeys: "",
            openCapabilities: createUnconnectedCapabilities,
            writeLogLine: (facts: AnsweredReviewFacts) => {
              written += formatLogLine(facts, "test", 1);
            },
          },
        );
        const core = fc.string({ unit: fc.constantFrom(..."QXZJ23456789"), minLength: 10, maxLength: 14 });
        const around = fc.constantFrom("", '"', "'", "\\", "{", "\n", "é", "(");
        await fc.assert(
          fc.asyncProperty(core, around, fc.integer({ min: 1_000_000 }), async (text, before, number) => {
            written = "";
            const object = {
              apiVersion: "example.com/v1",
              kind: "Shop",
              metadata: { name: "web", namespace: "shop" },
              data: { text: `${before}${text}`, number },
            };
            const request = {
              uid: "u",
              operation: "CREATE",
              name: "web",
              namespace: "shop",
              userInfo: {},
              object,
              kind: { group: "example.com", version: "v1", kind: "Shop" },
              resource: { group: "example.com", version: "v1", resource: "shops" },
            };
            const review = { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", request };
            await handler({ phase, review, settings }, { functionName: "sample" } as never);
            // Some texts are valid base64 or begin like JSON, so the script doesn't fail for them.
            fc.pre(written.includes('"verdict":"failed"'));
            assert.match(written, /failing, \w+\[0\]/);
            for (const value of [text, String(number)]) assert.ok(!written.includes(value), written);
          }),
          { numRuns: 8 },
        );
      });
});
