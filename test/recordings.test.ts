import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { EndpointHost } from "#lib/core/endpoint.ts";
import { createEndpoint } from "#lib/core/endpoint.ts";
import type { EnforcementMode, RuleDecision } from "#lib/core/evaluation.ts";
import { createRecordedCapabilities } from "#lib/recording/recorded-answers.ts";
import { createRecorder, type RecordedReview } from "#lib/recording/recorder.ts";
import type { Case, RecordingOrigin } from "#lib/recording/recording.ts";
import type { AdmissionRequest } from "#lib/review.ts";
import { getVariants, selectPhase } from "#lib/rule.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import { describeCaseDifferences, parseDecision } from "../infra/catalogue/case-differences.ts";
import {
  applyCaseSettingsAndVariant,
  buildReview,
  evaluateCase,
  getCasePhase,
  parseCases,
  readCases,
} from "../infra/catalogue/cases.ts";
import { type CatalogueRule, readCatalogue } from "../infra/catalogue/registry.ts";
import { createHttpRequestBuilder } from "./bench/inputs/reviews.ts";
import { perturbCases } from "./case-generators.ts";
import { choosePart } from "./choices.ts";
import { createTestSigner } from "./parity/test-key.ts";
import { buildSecretRequest, findSecrets, readSecrets } from "./secret-corpus.ts";

// Tests that the recording of a review is a case with the same outcome. POSTERN_RULES lists the rules to test.
const listedRules = process.env.POSTERN_RULES?.split(",").filter(Boolean) ?? [];
// A run of all tests takes only every second rule, because these tests are slow.
const isChosen = choosePart("recordings", /* count */ 2);
const catalogue = (await readCatalogue()).filter(({ name }, index) =>
  listedRules.length === 0 ? isChosen(index) : listedRules.includes(name),
);
const signer = createTestSigner(1);

/** Generates functions that change the fields of a request, but not its object: they set values that no case has. */
const requestChanges = fc
  .record(
    {
      namespace: fc.constantFrom("", "elsewhere", undefined),
      name: fc.constantFrom("", "somebody", undefined),
      subResource: fc.constantFrom("", "status", "a/b", undefined),
      requestSubResource: fc.constantFrom("", "scale"),
      resource: fc.constant({ group: "", version: "v1", resource: "" }),
      requestKind: fc.constant({ group: "example.org", version: "v1beta3", kind: "Other" }),
      dryRun: fc.constantFrom(true, false, undefined),
      options: fc.constantFrom(null, { kind: "CreateOptions", apiVersion: "meta.k8s.io/v1", fieldManager: "kubectl" }),
      userInfo: fc.record(
        { username: fc.string(), uid: fc.string(), extra: fc.dictionary(fc.string(), fc.array(fc.string())) },
        { requiredKeys: [] },
      ),
      // In brackets, the key is a member like others; without them, it would be the prototype.
      ["__proto__"]: fc.constant({ odd: true }),
    },
    { requiredKeys: [] },
  )
  .map(
    (changes) =>
      (request: AdmissionRequest): AdmissionRequest =>
        JSON.parse(JSON.stringify({ ...request, ...changes })),
  );

/** Sends a request to a rule's endpoint. Returns the answer and the recordings. */
const sendReview = async (listed: CatalogueRule, entry: Case, request: AdmissionRequest, mode: EnforcementMode) => {
  const { name, rule } = listed;
  const settings = mergeWithDefaults(rule.settings ?? {}, entry.settings);
  const variants = getVariants(rule, settings)?.map(({ name, settings = {} }) => [name, settings]);
  const recordings: RecordedReview[] = [];
  const host: EndpointHost = {
    publicKeys: signer.publicKey,
    openCapabilities: () => createRecordedCapabilities(entry.needs ?? {}),
    writeLogLine: () => {},
  };
  const recorder = createRecorder(host, (one) => void recordings.push(one));
  const config = {
    rule: name,
    ...(variants && { variants: Object.fromEntries(variants) }),
    clusters: { local: { keyVersions: [1], mode, settings } },
  };
  const phase = getCasePhase(entry);
  const segments = [signer.segment("local"), name, phase, ...(variants && entry.variant ? [entry.variant] : [])];
  const path = `/${segments.join("/")}`;
  const review = JSON.stringify({ kind: "AdmissionReview", apiVersion: "admission.k8s.io/v1", request });
  const { answerRequest } = createEndpoint(rule, config, recorder.host, recorder.evaluate);
  const buildHttpRequest = createHttpRequestBuilder(path, review);
  const { code, body } = await answerRequest(buildHttpRequest());
  return { statusCode: code, answer: JSON.parse(body), recordings };
};

/**
 * Sends a request to a rule, and asserts that the recording, evaluated as a case, gives the outcome that the recording
 * states. In the mode enforce, and unless the recording is marked as redacted, that must be the answer of the rule.
 */
const assertRecording = async (
  listed: CatalogueRule,
  entry: Case,
  request: AdmissionRequest,
  mode: EnforcementMode = "enforce",
) => {
  const { statusCode, answer, recordings } = await sendReview(listed, entry, request, mode);
  const what = `${entry.name}: ${JSON.stringify(request)}`;
  if (statusCode !== 200) {
    assert.deepEqual(recordings, [], "a failure must not be recorded");
    return undefined;
  }
  const [recording, ...others] = recordings;
  assert.ok(recording && others.length === 0, what);
  const line = await recording.line();
  assert.match(line, /^- \{.*\}\n$/, what);
  const [recordedCase] = parseCases(line, "a recording", [getCasePhase(entry)]);
  assert.ok(recordedCase, what);
  const review = buildReview(listed, recordedCase);
  const { redacted: dependsOnRedactedText, ...origin } = recordedCase.recorded as RecordingOrigin;
  assert.deepEqual(origin, { rule: listed.name, cluster: "local", version: "local", at: recordedCase.now }, what);
  assert.deepEqual(Object.keys(review.request).sort(), Object.keys(request).sort(), what);
  const decision = await evaluateCase(listed, recordedCase, review);
  assert.deepEqual(describeCaseDifferences(recordedCase, decision), [], what);
  if (mode === "enforce" && !dependsOnRedactedText)
    assert.deepEqual(summarize(decision), summarize(parseDecision(answer, request.uid) ?? assert.fail(what)), what);
  return { line, dependsOnRedactedText };
};

/** Reports whether a rule, with the settings and variant of a case, matches the resource of a request. */
const isMatched = ({ rule }: CatalogueRule, example: Case, { resource }: AdmissionRequest): boolean => {
  const { rule: variantRule, settings } = applyCaseSettingsAndVariant(rule, example);
  const resources =
    selectPhase(variantRule.match, getCasePhase(example), settings)?.flatMap(({ resources }) => resources) ?? [];
  return resources.some((one) => one === "*" || one === "*/*" || one === resource.resource);
};

/** Returns the parts of a decision that can't contain texts of the object. */
const summarize = ({ refused, operations, outcome: { status, warnings = [], audit = {} } }: RuleDecision) => {
  const { code, reason } = status ?? {};
  return { refused, operations, code, reason, warnings: warnings.length, audit: Object.keys(audit).length };
};

for (const listed of catalogue) {
  const cases = await readCases(listed);
  describe(`a recording of ${listed.name}`, () => {
    it("a recording is a case with the recorded outcome, for each case of the rule", async () => {
      for (const entry of cases) {
        const found = await assertRecording(listed, entry, buildReview(listed, entry).request);
        assert.equal(
          found?.dependsOnRedactedText,
          undefined,
          `${entry.name} has another outcome without its free text`,
        );
      }
    });
    it("a recording is a case with the rule's own outcome even in the modes warn and audit", async () => {
      for (const [index, entry] of cases.entries())
        await assertRecording(listed, entry, buildReview(listed, entry).request, index % 2 === 0 ? "warn" : "audit");
    });
    it("a recording of a generated request is a case with the recorded outcome", () =>
      fc.assert(
        fc.asyncProperty(perturbCases(cases), requestChanges, async (entry, changeRequest) => {
          await assertRecording(listed, entry, changeRequest(buildReview(listed, entry).request));
        }),
        { numRuns: 10 },
      ));
    it("a recording contains no secrets of the object", async () => {
      const examples = listed.phases.flatMap((phase) => cases.find((entry) => getCasePhase(entry) === phase) ?? []);
      for (const planted of readSecrets())
        for (const example of examples) {
          const request = buildSecretRequest(planted);
          if (!isMatched(listed, example, request)) continue;
          const { line } = (await assertRecording(listed, example, request)) ?? { line: "" };
          assert.deepEqual(findSecrets(line, planted), [], `${planted.what}: ${line}`);
        }
    });
  });
}
