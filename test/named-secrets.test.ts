import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type FieldReadTracker, inactiveFieldReadTracker } from "#lib/recording/reads.ts";
import { createRecordedCapabilities } from "#lib/recording/recorded-answers.ts";
import { createRecorder } from "#lib/recording/recorder.ts";
import type { Recording } from "#lib/recording/recording.ts";
import { createRedactor } from "#lib/recording/redaction.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { type Rule, rule } from "#lib/rule.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import policyValidate from "../functions/policy-validate/rule.ts";
import validatingAdmissionPolicy from "../functions/validating-admission-policy/rule.ts";
import { buildToken, listNamedSecrets, listOrdinaryTexts, type PlantedText, tokenForms } from "./named-secrets.ts";
import { buildPodRequest } from "./requests.ts";

// Tests that recordings contain no secrets, but keep other texts, if a rule reads each text by its path.

type Path = (string | number)[];

const listTextPaths = (value: unknown, path: Path = []): Path[] => {
  if (typeof value === "string") return [path];
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, member]) =>
    listTextPaths(member, [...path, Array.isArray(value) ? Number(key) : key]),
  );
};

const toBrackets = (path: Path): string => path.map((step) => `[${JSON.stringify(step)}]`).join("");

/** Reads the member at a path, step by step, as the code of a rule does. */
const readPath = (value: unknown, path: Path): unknown =>
  path.reduce<unknown>((inner, step) => (inner as Record<string, unknown>)[step], value);

const named = { metadata: { name: "reads" } };
/** Builds a rule that reads the texts at these paths of an object. */
type BuildReadingRule = (paths: Path[]) => { rule: Rule; settings: object };
const readers: [what: string, build: BuildReadingRule][] = [
  [
    "a rule in TypeScript",
    (paths) => {
      const validate = (object: object) => void paths.map((path) => readPath(object, path));
      return { rule: rule({ summary: "Reads texts by name.", match: [], validate }), settings: {} };
    },
  ],
  [
    "a policy in CEL",
    (paths) => {
      const api = { apiVersion: "admissionregistration.k8s.io/v1", ...named };
      const rules = [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*"], operations: ["*"] }];
      const validations = paths.map((path) => ({ expression: `object${toBrackets(path)} != "none"` }));
      const policy = { matchConstraints: { resourceRules: rules }, validations };
      return {
        rule: validatingAdmissionPolicy as unknown as Rule,
        settings: {
          policies: [
            { ...api, kind: "ValidatingAdmissionPolicy", spec: policy },
            {
              ...api,
              kind: "ValidatingAdmissionPolicyBinding",
              spec: { policyName: "reads", validationActions: ["Deny"] },
            },
          ],
        },
      };
    },
  ],
  [
    "a policy of kinitiras",
    (paths) => {
      const validateRules = paths.map(([first = "", ...path]) => {
        const dataRef = { from: "current", path: `${first}${toBrackets(path)}` };
        const condition = { cond: "Equal", dataRef, value: { string: "none" }, message: "none" };
        return { template: { type: "condition", condition } };
      });
      const resourceSelectors = [{ apiVersion: "v1", kind: "Pod" }];
      const policy = { apiVersion: "policy.kcloudlabs.io/v1alpha1", kind: "ClusterValidatePolicy", ...named };
      return {
        rule: policyValidate as unknown as Rule,
        settings: { policies: [{ ...policy, spec: { resourceSelectors, validateRules } }], inCluster: false },
      };
    },
  ],
];

/** Returns the recording of a review of an object with all these values, in which the rule reads each text. */
const recordReads = async (planted: readonly PlantedText[], buildRule: BuildReadingRule): Promise<Recording> => {
  const spec = Object.fromEntries(planted.map(({ value }, index) => [`part${index}`, value]));
  const object = { apiVersion: "v1", kind: "Pod", metadata: { name: "web", namespace: "shop" }, spec };
  const { rule, settings: chosen } = buildRule(listTextPaths({ spec }));
  const settings = mergeWithDefaults(rule.settings ?? {}, chosen);
  const lines: Promise<string>[] = [];
  const capabilities = createRecordedCapabilities({});
  const host = { publicKeys: "", openCapabilities: () => capabilities, writeLogLine: () => {} };
  const { host: recordingHost, evaluate } = createRecorder(host, (review) => void lines.push(review.line()));
  const request = buildPodRequest({ operation: "CREATE", namespace: "shop", object: object as KubernetesObject });
  const context = { name: "reads", mode: "enforce" as const, settings, now: new Date(0), capabilities };
  const { refused } = await evaluate(rule, "validate", request, context);
  assert.equal(refused, false);
  const report = { rule: "reads", cluster: "prod", key: "1", code: 200, function: "f", version: "7", milliseconds: 0 };
  recordingHost.writeLogLine({ ...report, request, refused, operations: 0 });
  const line = (await lines[0]) ?? assert.fail("it is not recorded");
  const listElementMark = "- ";
  return JSON.parse(line.slice(listElementMark.length));
};

const splitIntoChunks = (planted: readonly PlantedText[], size: number): PlantedText[][] =>
  planted.length === 0 ? [] : [planted.slice(0, size), ...splitIntoChunks(planted.slice(size), size)];

for (const [what, build] of readers)
  describe(`a recording that is made while ${what} reads each text at its field path`, () => {
    it("a recording contains no secret that can be recognized by its name, form or surrounding text", async () => {
      const secrets = listNamedSecrets();
      assert.ok(secrets.length >= 400, `${secrets.length}`);
      const recorded: string[] = [];
      for (const chunk of splitIntoChunks(secrets, 100)) {
        const line = JSON.stringify(await recordReads(chunk, build));
        recorded.push(...chunk.filter(({ text }) => line.includes(text)).map(({ value }) => JSON.stringify(value)));
      }
      assert.deepEqual(recorded, []);
    });

    it("a recording keeps texts that are no secrets", async () => {
      const ordinary = listOrdinaryTexts();
      const line = await recordReads(ordinary, build);
      const { spec = {} } = line.validate as { spec?: object };
      const kept = Object.values(spec).map((value) => JSON.stringify(value));
      assert.deepEqual(
        ordinary.map(({ value }) => JSON.stringify(value)).filter((value) => !kept.includes(value)),
        [],
      );
    });
  });

describe("a recording of random tokens", () => {
  for (const form of Object.keys(tokenForms))
    it(`a recording contains at most 10 of 2,000 tokens of ${form}, whether a rule reads the tokens or not`, () => {
      const { POSTERN_SEED: seed } = process.env;
      // A name may be a UUID.
      const key = form === "a UUID" ? "note" : "name";
      const reads: FieldReadTracker = { ...inactiveFieldReadTracker, has: () => true };
      const tokens = Array.from({ length: 2000 }, (_, number) => buildToken(form, number, seed));
      for (const redact of [createRedactor(), createRedactor({ reads })]) {
        const recorded = tokens.filter((token) => redact({ [key]: token })[key] === token);
        assert.ok(recorded.length <= 10, recorded.join(" "));
      }
    });
});
