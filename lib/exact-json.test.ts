import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Context } from "aws-lambda";
import fc from "fast-check";
import { createTestSigner } from "../test/parity/test-key.ts";
import { buildPodReview } from "../test/requests.ts";
import { evaluateRule } from "./core/evaluation.ts";
import { exactJson } from "./exact-json.ts";
import { toMap } from "./json.ts";
import { createLambdaHandler } from "./lambda/handler.ts";
import { formatRecording } from "./recording/case-line.ts";
import { type AdmissionRequest, decodeReview } from "./review.ts";
import { rule } from "./rule.ts";

describe("exact JSON", () => {
  const rows: [text: string, value: unknown][] = [
    ["9007199254740991", 9007199254740991],
    ["[9007199254740992]", [9007199254740992n]],
    ['{"a":-9007199254740993}', { a: -9007199254740993n }],
    ['{"a": [1,9223372036854775807]}', { a: [1, 9223372036854775807n] }],
    ["[\n-9223372036854775808]", [-9223372036854775808n]],
    ["[9223372036854775808]", [2 ** 63]],
    ["[18446744073709551615]", [2 ** 64]],
    ["[9007199254740993.0]", [9007199254740992]],
    ["[9007199254740993e0]", [9007199254740992]],
    ["[0.50000000000000000000]", [0.5]],
    ['[":9007199254740993",",9007199254740993"]', [":9007199254740993", ",9007199254740993"]],
    ['{"__proto__":[9007199254740993]}', Object.fromEntries([["__proto__", [9007199254740993n]]])],
  ];
  for (const [text, value] of rows) it(`reads ${text}`, () => assert.deepEqual(exactJson.parse(text), value));

  it("exact JSON keeps all digits of integers of 64 bits, and changes no other value", () =>
    fc.assert(
      fc.property(fc.json(), fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }), (json, integer) => {
        const text = `{"json":${json},"list":[${integer},\t${integer}]}`;
        const read = exactJson.parse(text) as { json: unknown; list: unknown[] };
        assert.deepEqual(read.list.map(String), [`${integer}`, `${integer}`]);
        assert.deepEqual(JSON.parse(exactJson.stringify(read)), JSON.parse(text));
      }),
    ));
});

const host = { publicKeys: createTestSigner(1).publicKey, writeLogLine() {} };
const definition = {
  summary: "Copies a list, and reports the type of its first element.",
  match: [],
  mutate(object: { list?: unknown[]; copy?: unknown }) {
    object.copy = object.list;
    return { audit: { type: typeof object.list?.[0] } };
  },
};
const setup = { keyVersions: [1], mode: "enforce" as const, settings: {} };
const list = '[9007199254740993,{"a":-9007199254740993}]';
const review = JSON.stringify(buildPodReview({ object: { list: 0 } })).replace('"list":0', `"list":${list}`);

describe("a rule with exactIntegers", () => {
  const mutate = async (ruleToTest: ReturnType<typeof rule>) => {
    const handle = createLambdaHandler(
      { rules: { counting: ruleToTest }, config: { rule: "counting", usual: setup, clusters: {} } },
      host,
    );
    const event = {
      version: "2.0",
      rawPath: `/${createTestSigner(1).segment("local")}/counting/mutate`,
      requestContext: { http: { method: "POST" } },
      headers: { "content-type": "application/json" },
      body: review,
    };
    const { body } = toMap(await handle(event, {} as Context));
    const { response } = JSON.parse(String(body));
    return [response.auditAnnotations.type, Buffer.from(response.patch, "base64").toString()];
  };

  it("a rule with exactIntegers gets integers of 64 bits, and writes them into its patch", async () => {
    const patch = `[{"op":"add","path":"/copy","value":${list}}]`;
    assert.deepEqual(await mutate(rule({ ...definition, exactIntegers: true })), ["bigint", patch]);
    assert.deepEqual(await mutate(rule(definition)), ["number", patch.replaceAll("993", "992")]);
  });

  it("a review with exact integers is refused with 413 if its object is nested too deep", () => {
    const lists = `${"[".repeat(100_000)}9007199254740993${"]".repeat(100_000)}`;
    const deepReview = JSON.stringify(buildPodReview({ object: { a: 0 } })).replace('"a":0', `"a":${lists}`);
    assert.throws(() => decodeReview(deepReview, exactJson.parse), { code: 413 });
    assert.ok(decodeReview(deepReview));
  });

  it("the recording of a rule with exactIntegers has all digits of the integers", async () => {
    const counting = rule({ ...definition, exactIntegers: true });
    const { request } = exactJson.parse(review) as { request: AdmissionRequest };
    const context = { name: "counting", mode: "enforce" as const, settings: {}, now: new Date(0) };
    const decision = await evaluateRule(counting, "mutate", request, context);
    const evaluation = { rule: counting, phase: "mutate" as const, request, context, decision };
    const origin = { rule: "counting", cluster: "local", version: "1", at: "" };
    const line = await formatRecording(evaluation, origin);
    assert.ok(line.includes(`"becomes":{"list":${list},"copy":${list}}`), line);
  });
});
