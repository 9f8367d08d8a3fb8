import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Case } from "#lib/recording/recording.ts";
import { buildReviewResponse, type ReviewOutcome } from "#lib/review.ts";
import { buildReview } from "../catalogue/cases.ts";
import { listDifferingAspects, parseReplayAnswer, readRecordedAnswer } from "./answers.ts";

const note = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "a" }, data: { a: "1" } };
const changing: Case = {
  name: "is asked",
  mutate: note,
  becomes: { ...note, data: { a: "1", b: "2" } } as typeof note,
};
const listed = { name: "notes", folder: "", phases: [], rule: { summary: "Notes.", match: [] } };
const review = buildReview(listed, changing);

/** Returns the answer of a function. */
const answerWith = (outcome: ReviewOutcome, entry = changing) => {
  const answer = parseReplayAnswer(buildReviewResponse(review, outcome), entry, review.request.uid);
  assert.ok("made" in answer, JSON.stringify(answer));
  return answer;
};
const readRecorded = (entry: Partial<Case>) => {
  const answer = readRecordedAnswer({ name: "is asked", mutate: note, ...entry });
  assert.ok("made" in answer);
  return answer;
};
const deny = (status: ReviewOutcome["status"]): ReviewOutcome => ({ allowed: false, ...(status && { status }) });

describe("an answer", () => {
  it("is what the patch makes, however it makes it", () => {
    const whole = answerWith({ allowed: true, patch: [{ op: "replace", path: "/data", value: { a: "1", b: "2" } }] });
    const single = answerWith({ allowed: true, patch: [{ op: "add", path: "/data/b", value: "2" }] });
    assert.deepEqual(listDifferingAspects(whole, single), []);
    assert.deepEqual(listDifferingAspects(readRecorded(changing), single), []);
    assert.equal(whole.made.verdict, "changed");
  });

  it("is no change where the patch leaves all as it is", () => {
    const idle = answerWith({ allowed: true, patch: [{ op: "replace", path: "/data/a", value: "1" }] });
    assert.equal(idle.made.verdict, "allowed");
    assert.deepEqual(listDifferingAspects(idle, readRecorded({ admitted: true })), []);
  });

  const status = { code: 403, reason: "Forbidden", message: "no" };
  for (const [what, left, right, expected] of [
    ["its verdict", { allowed: true }, deny(status), ["verdict", "message", "code", "reason"]],
    ["its message", deny(status), deny({ ...status, message: "never" }), ["message"]],
    ["its code", deny(status), deny({ ...status, code: 422 }), ["code"]],
    ["its reason", deny(status), deny({ code: 403, message: "no" }), ["reason"]],
    ["its details", deny(status), deny({ ...status, details: { name: "a" } }), ["details"]],
    ["its warnings", { allowed: true }, { allowed: true, warnings: ["soon"] }, ["warnings"]],
    ["its audit annotations", { allowed: true, audit: { a: "1" } }, { allowed: true }, ["audit"]],
    [
      "what it makes of the object",
      { allowed: true, patch: [{ op: "add", path: "/data/b", value: "2" }] },
      { allowed: true, patch: [{ op: "add", path: "/data/c", value: "2" }] },
      ["object"],
    ],
    ["nothing", deny(status), deny(status), []],
  ] as [string, ReviewOutcome, ReviewOutcome, string[]][])
    it(`differs in ${what}`, () =>
      assert.deepEqual(listDifferingAspects(answerWith(left), answerWith(right)), expected));

  it("differs in its mode only where there is something to say", () => {
    const [no, yes] = [answerWith(deny(status)), answerWith({ allowed: true })];
    assert.deepEqual(listDifferingAspects({ ...no, mode: "warn" }, { ...no, mode: "enforce" }), ["mode"]);
    assert.deepEqual(listDifferingAspects({ ...yes, mode: "warn" }, { ...yes, mode: "enforce" }), []);
    assert.deepEqual(listDifferingAspects(no, { ...no, mode: "enforce" }), []);
  });

  it("that was recorded has a code and a reason though it doesn't say them", () => {
    assert.deepEqual(listDifferingAspects(readRecorded({ refused: "no" }), answerWith(deny(status))), []);
    assert.deepEqual(
      listDifferingAspects(
        readRecorded({ refused: "no", reason: null }),
        answerWith(deny({ code: 403, message: "no" })),
      ),
      [],
    );
  });

  it("written by hand has no details, and a recorded one has them", () => {
    const detailed = answerWith(deny({ ...status, details: { name: "a" } }));
    assert.deepEqual(listDifferingAspects(readRecorded({ refused: "no" }), detailed), []);
    assert.deepEqual(listDifferingAspects(readRecorded({ refused: "no", recorded: {} }), detailed), ["details"]);
  });

  it("that was recorded is fitted into a response as any other", () => {
    const warnings = ["a\nb", "a\nb"];
    assert.deepEqual(
      listDifferingAspects(readRecorded({ admitted: true, warnings }), answerWith({ allowed: true, warnings })),
      [],
    );
  });

  for (const [what, answer, expected] of [
    [
      "no such phase",
      { kind: "Status", code: 404, message: "there is nothing here" },
      { absent: "has nothing to mutate" },
    ],
    ["a failure", { kind: "Status", code: 500, message: "no answer is recorded" }, { fault: "no answer is recorded" }],
    ["something else", { hello: 1 }, { fault: 'its answer is not an AdmissionReview: {"hello":1}' }],
    ["nothing", undefined, { fault: "its answer is not an AdmissionReview: undefined" }],
    [
      "a patch of what isn't there",
      buildReviewResponse(review, { allowed: true, patch: [{ op: "remove", path: "/spec/a" }] }),
      { fault: /^its patch can't be applied: / },
    ],
    [
      "a patch that is none",
      { kind: "AdmissionReview", response: { uid: review.request.uid, allowed: true, patch: "e30" } },
      { fault: /^its patch can't be applied: / },
    ],
  ] as const)
    it(`is said where it is ${what}`, () => {
      const found = parseReplayAnswer(answer, changing, review.request.uid);
      if ("fault" in expected && expected.fault instanceof RegExp) {
        assert.ok("fault" in found);
        assert.match(found.fault, expected.fault);
      } else assert.deepEqual(found, expected);
    });

  it("isn't known of a case that doesn't say what came out", () =>
    assert.deepEqual(readRecordedAnswer({ name: "is asked", validate: {} }), {
      fault: "it has no recorded answer",
    }));
});
