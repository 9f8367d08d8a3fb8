import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { buildPodRequest } from "../../test/requests.ts";
import { generateHolder, generateSecret } from "../../test/secret-generators.ts";
import type { RuleDecision } from "../core/evaluation.ts";
import { evaluateRule } from "../core/evaluation.ts";
import { toMap } from "../json.ts";
import { aws, cue, get, http, https, list } from "../needs.ts";
import type { AdmissionRequest, KubernetesObject } from "../review.ts";
import { rule } from "../rule.ts";
import { formatRecording } from "./case-line.ts";
import { createRecordedCapabilities, type RecordedCapabilityAnswers } from "./recorded-answers.ts";
import { createRecorder } from "./recorder.ts";
import type { Recording } from "./recording.ts";
import type { UnredactedPath } from "./redaction.ts";

/** A rule that repeats its whole input in each place where a rule can put text. */
const gossip = rule({
  summary: "Tells everything.",
  match: [],
  settings: { any: null as unknown },
  needs: { pod: get("pods"), secrets: list("secrets"), https: https(), http: http(), aws: aws("ec2:DescribeVolumes") },
  async mutate(object: KubernetesObject, { request, settings, pod, secrets, https, http, aws }) {
    const answers = [
      await pod({ name: "one", namespace: "shop" }),
      await secrets("shop"),
      await https({ url: "https://a.example/", method: "POST", headers: { a: toText(object) }, body: toText(object) }),
      await http({ url: "http://a.example/", headers: { authorization: toText(request.userInfo) } }),
      await aws({ region: "eu-west-1", parameters: { a: toText(object) } }),
    ];
    object.metadata = { ...object.metadata, annotations: { heard: toText(answers) } };
    return { warnings: [toText(answers), toText(settings)], audit: { request: toText(request) } };
  },
});
const toText = (value: unknown): string => JSON.stringify(value) ?? "";

const requestWith = (changes: Partial<AdmissionRequest>): AdmissionRequest => {
  const object = { apiVersion: "v1", kind: "Pod", metadata: { name: "web" } };
  return buildPodRequest({ operation: "UPDATE", namespace: "shop", object, ...changes });
};

const base = { name: "gossip", mode: "enforce" as const, now: new Date(0), variant: undefined };
const origin = { rule: "gossip", cluster: "prod", version: "1", at: "" };
const silentHost = { publicKeys: "", openCapabilities: () => createRecordedCapabilities({}), writeLogLine: () => {} };

/** Returns the recording of a request to the rule `gossip`. Every question of the rule gets the given answer. */
const recordLine = async (
  request: AdmissionRequest,
  settings: object,
  answer: unknown,
  keep: UnredactedPath[] = [],
): Promise<string> => {
  const lines: Promise<string>[] = [];
  const { host, evaluate } = createRecorder(silentHost, (review) => void lines.push(review.line(keep)));
  const buildObject = (kind: string) => ({
    ...toMap(answer),
    apiVersion: "v1",
    kind,
    metadata: { name: "one", namespace: "shop" },
  });
  const answerRequest = async () => ({ status: 200, body: toText(answer) });
  const capabilities = {
    ...createRecordedCapabilities({}),
    https: answerRequest,
    http: answerRequest,
    aws: answerRequest,
    get: async () => buildObject("Pod"),
    list: async () => [buildObject("Secret")],
  };
  const decision = (await evaluate(gossip, "mutate", request, { ...base, settings, capabilities })) as RuleDecision;
  const report = { rule: "gossip", cluster: "prod", key: "1", code: 200, function: "f", version: "7", milliseconds: 0 };
  // The recorder passes a review to its callback when the review's log line is written.
  host.writeLogLine({ ...report, request, refused: decision.refused, operations: decision.operations });
  return lines[0] ?? assert.fail("no review was recorded");
};

/** Parses a line of recordings, which is an element of a YAML list: `- `, followed by JSON. */
const parseRecording = (line: string): Recording => JSON.parse(line.slice("- ".length));

describe("a recording", () => {
  it("a recording contains no byte of a secret from any part of the request or the answers", () =>
    fc.assert(
      fc.asyncProperty(
        fc.uuid().chain((planted) => fc.tuple(fc.constant(planted), generateHolder(generateSecret(planted)))),
        fc.constantFrom("object", "oldObject", "extra", "options", "settings", "answer"),
        async ([planted, value], where) => {
          const texts = [toText(value)];
          const request = requestWith({
            ...(where === "object" && { object: { metadata: { name: "web" }, value } }),
            ...(where === "oldObject" && { oldObject: { value } }),
            ...(where === "extra" && { userInfo: { username: "jane", extra: { a: texts } } }),
            ...(where === "options" && { options: { value } }),
          });
          const settings = where === "settings" ? { any: value } : { any: null };
          const line = await recordLine(request, settings, where === "answer" ? { value } : { a: "b" });
          for (const secret of [planted, Buffer.from(planted).toString("base64")])
            assert.ok(!line.includes(secret), `${where}: ${line}`);
        },
      ),
      { numRuns: 300 },
    ));

  it("a recording has the answers to the questions that the rule asks about the redacted object", async () => {
    const object = { metadata: { name: "web", annotations: { note: "free text" } } };
    const line = await recordLine(requestWith({ object }), { any: null }, { a: "b" });
    const recording: Recording = parseRecording(line);
    const needs: RecordedCapabilityAnswers = recording.needs ?? {};
    const answer = { status: 200, body: '{"a":"redacted0002"}' };
    const redactedObject = toText({ metadata: { name: "web", annotations: { note: "redacted0001" } } });
    assert.deepEqual(recording.mutate, JSON.parse(redactedObject));
    assert.deepEqual(needs.https, [
      { url: "https://a.example/", method: "POST", headers: { a: redactedObject }, body: redactedObject, answer },
    ]);
    const headers = { authorization: toText({ username: "jane" }) };
    assert.deepEqual(needs.http, [{ url: "http://a.example/", headers, answer }]);
    const parameters = { a: redactedObject };
    assert.deepEqual(needs.aws, [{ action: "ec2:DescribeVolumes", region: "eu-west-1", parameters, answer }]);
    assert.ok(recording.becomes);
  });

  it("a recording is marked as redacted if its outcome differs, or if a script got placeholders", async () => {
    const [textRule, scriptRule] = [
      rule({
        summary: "Goes through all.",
        match: [],
        validate: (object: object) => (toText(object).includes("free") ? "no" : undefined),
      }),
      rule({
        summary: "Has a script.",
        match: [],
        needs: { cue: cue() },
        async validate(object: object, { cue }) {
          await cue(`"object": ${toText(object)}`);
        },
      }),
    ];
    for (const [testedRule, text, expected] of [
      [textRule, "free", true],
      [textRule, "tied", undefined],
      [scriptRule, "free", true],
      [scriptRule, "", undefined],
    ] as const) {
      const request = requestWith({ object: { metadata: { name: "web", annotations: { note: text } } } });
      const context = { ...base, settings: {}, capabilities: createRecordedCapabilities({}) };
      const decision = await evaluateRule(testedRule, "validate", request, context);
      const evaluation = {
        rule: testedRule,
        phase: "validate" as const,
        request,
        context,
        needs: testedRule.needs && {},
        decision,
      };
      const recording = parseRecording(await formatRecording(evaluation, origin));
      assert.deepEqual([recording.recorded.redacted, recording.admitted], [expected, true], text);
    }
  });

  it("a recording keeps the texts at the paths of `keep` in the object and the old object", async () => {
    const object = { metadata: { name: "web", annotations: { note: "free text" } } };
    const silent = rule({ summary: "Does nothing.", match: [], validate() {} });
    const request = requestWith({ object, oldObject: object });
    const decision = { outcome: { allowed: true }, refused: false, operations: 0 };
    const evaluation = {
      rule: silent,
      phase: "validate" as const,
      request,
      context: { ...base, settings: {} },
      decision,
    };
    const recording = parseRecording(await formatRecording(evaluation, origin, [["metadata", "annotations", "note"]]));
    assert.deepEqual([recording.validate, recording.oldObject], [object, object]);
  });

  it("the recording of a rule with `since` has the cluster's minor version of Kubernetes", async () => {
    const plain = rule({ summary: "Does nothing.", match: [], validate() {} });
    const differing = rule({
      summary: "Refuses since 1.36.",
      match: [],
      since: { "1.0": { refusal: "" }, "1.36": { refusal: "no" } },
      validate: (_, { upstream }) => upstream.refusal || undefined,
    });
    const request = requestWith({ object: { metadata: { name: "web" } } });
    const context = { ...base, settings: {}, kubernetes: "1.35" };
    const decision = { outcome: { allowed: true }, refused: false, operations: 0 };
    for (const [recorded, expected] of [
      [plain, undefined],
      [differing, "1.35"],
    ] as const) {
      const evaluation = { rule: recorded, phase: "validate" as const, request, context, decision };
      const recording = parseRecording(await formatRecording(evaluation, origin));
      assert.deepEqual([recording.kubernetes, recording.admitted], [expected, true]);
    }
  });

  it("if a rule's structuredClone throws for the proxies that track reads, no text counts as read", async () => {
    const copying = rule({
      summary: "Copies.",
      match: [],
      validate: (_: object, { request }) => void structuredClone(request.object),
    });
    const request = requestWith({ object: { metadata: { name: "web" }, note: "free text" } });
    const decision = { outcome: { allowed: true }, refused: false, operations: 0 };
    const evaluation = {
      rule: copying,
      phase: "validate" as const,
      request,
      context: { ...base, settings: {} },
      decision,
    };
    const recording = parseRecording(await formatRecording(evaluation, origin));
    assert.deepEqual(recording.validate, { metadata: { name: "web" }, note: "redacted0001" });
  });

  it("a recording is one line that YAML parses to the same case", async () => {
    const specialText = "\u2028\u2029\u0085\ufeff\u007f\n\ud800é😀 # : - *a";
    const object = { metadata: { name: "web", annotations: { [specialText]: specialText, "<<": specialText } } };
    const line = await recordLine(requestWith({ object }), { any: specialText }, { a: specialText }, [["metadata"]]);
    assert.match(line, /^- \{[^\n\u0085\u2028\u2029\ufeff\u007f]*\}\n$/);
    const { parse } = await import("yaml");
    assert.deepEqual(parse(line), [parseRecording(line)]);
    assert.equal(parseRecording(line).mutate?.metadata?.annotations?.[specialText], specialText);
  });

  it("the recording of a rule that can't be evaluated again fails", async () => {
    let times = 0;
    const moody = rule({
      summary: "Fails at times.",
      match: [],
      validate() {
        times += 1;
        if (times > 1) throw new Error("not again");
      },
    });
    moody.validate?.({}, {} as never); // This first evaluation succeeds.
    const decision = { outcome: { allowed: true }, refused: false, operations: 0 };
    const evaluation = { rule: moody, phase: "validate" as const, request: requestWith({}), decision };
    await assert.rejects(
      formatRecording({ ...evaluation, context: { ...base, settings: {} } }, origin),
      /^Error: not again$/,
    );
  });
});
