import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { buildSecretRequest, findSecrets, readSecrets } from "../../test/secret-corpus.ts";
import { https } from "../needs.ts";
import type { AdmissionRequest, KubernetesObject } from "../review.ts";
import { type Rule, rule } from "../rule.ts";
import { createRecordedCapabilities } from "./recorded-answers.ts";
import { createRecorder } from "./recorder.ts";

// Tests recordings of realistic objects with secrets, for rules that read nothing, only names, or everything.
const corpus = readSecrets();
const capabilities = { ...createRecordedCapabilities({}), https: async () => ({ status: 200, body: "{}" }) };

const listTexts = (value: unknown): string[] =>
  typeof value === "object" && value !== null ? Object.values(value).flatMap(listTexts) : [String(value)];

const rules: [what: string, testedRule: Rule][] = [
  ["nothing", rule({ summary: "Reads nothing.", match: [], validate() {} })],
  [
    "names and images",
    rule({
      summary: "Names the object and its images.",
      match: [],
      // It reads `image` of each container, and of each variable, which has none: this must not reveal its value.
      // In an object without a spec, the lists are members of the object itself.
      validate: ({ kind, metadata, ...members }: KubernetesObject) => {
        const { spec = members } = members as { spec?: object };
        const { containers = [], env = [] } = spec as { containers?: object[]; env?: object[] };
        const images = [...containers, ...env].map((element) => Reflect.get(element, "image"));
        return [kind, metadata?.name, ...images].join(" ");
      },
    }),
  ],
  [
    "all, as one text",
    rule({
      summary: "Sends and returns its whole input.",
      match: [],
      needs: { ask: https() },
      async validate(object: KubernetesObject, { request, oldObject, ask }) {
        const text = JSON.stringify([object, request, oldObject]);
        await ask({ url: `https://a.example/?q=${encodeURIComponent(text)}`, method: "POST", body: text });
        return { refuse: text, warnings: [text], audit: { all: text } };
      },
    }),
  ],
  [
    "all, member by member",
    rule({
      summary: "Goes through all members.",
      match: [],
      mutate(object: KubernetesObject, { request }) {
        const annotations = { ...object.metadata?.annotations, all: listTexts({ ...object }).join(" ") };
        object.metadata = { ...object.metadata, annotations };
        return { warnings: listTexts(request.userInfo) };
      },
    }),
  ],
];

/** Returns the recording of a request to a rule. */
const recordLine = async (testedRule: Rule, request: AdmissionRequest): Promise<string> => {
  const lines: Promise<string>[] = [];
  const host = { publicKeys: "", openCapabilities: () => capabilities, writeLogLine: () => {} };
  const { host: recordingHost, evaluate } = createRecorder(host, (review) => void lines.push(review.line()));
  const context = { name: "one", mode: "enforce" as const, settings: {}, now: new Date(0), capabilities };
  await evaluate(testedRule, testedRule.mutate ? "mutate" : "validate", request, context);
  const report = { rule: "one", cluster: "prod", key: "1", code: 200, function: "f", version: "7", milliseconds: 0 };
  // The recorder records an evaluation only once the review's log line is written, because then it was answered.
  recordingHost.writeLogLine({ ...report, request, refused: false, operations: 0 });
  return lines[0] ?? assert.fail("the review was not recorded");
};

describe("a recording of an object with secrets", () => {
  it("recordings are tested with at least 300 secrets in objects of at least 40 kinds", () => {
    const count = corpus.reduce((sum, { secrets }) => sum + secrets.length, 0);
    assert.ok(count >= 300 && new Set(corpus.map(({ object }) => object.kind)).size >= 40, `${count}`);
    for (const planted of corpus) {
      const request = JSON.stringify(buildSecretRequest(planted));
      assert.deepEqual(findSecrets(request, planted), planted.secrets, planted.what);
    }
  });

  for (const [what, testedRule] of rules)
    it(`contains no secret if the rule reads ${what}`, async () => {
      for (const planted of corpus) {
        const line = await recordLine(testedRule, buildSecretRequest(planted));
        assert.deepEqual(findSecrets(line, planted), [], `${planted.what}: ${line}`);
      }
    });
});
