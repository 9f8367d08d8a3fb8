import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Case } from "#lib/recording/recording.ts";
import { buildReviewResponse, type ReviewOutcome } from "#lib/review.ts";
import { toCatalogueRule } from "../../test/catalogue-rules.ts";
import { readRows } from "../../test/rows.ts";
import { buildReview } from "../catalogue/cases.ts";
import { listDifferingAspects, parseReplayedReviewOutcome, readRecordedAnswer } from "./answers.ts";

const configMap = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "a" }, data: { a: "1" } };
const mutatingCase: Case = {
  name: "is replayed",
  mutate: configMap,
  becomes: { ...configMap, data: { a: "1", b: "2" } } as typeof configMap,
};
const listed = toCatalogueRule("notes", { summary: "Notes.", match: [] });
const review = buildReview(listed, mutatingCase);

/** Returns the answer of a function that returned this outcome. Fails unless the answer has a decision (`made`). */
const answerWith = (outcome: ReviewOutcome, ruleCase = mutatingCase) => {
  const answer = parseReplayedReviewOutcome(buildReviewResponse(review, outcome), ruleCase, review.request.uid);
  assert.ok("made" in answer, JSON.stringify(answer));
  return answer;
};
const readRecorded = (outcome: Partial<Case>) => {
  const answer = readRecordedAnswer({ name: "is replayed", mutate: configMap, ...outcome });
  assert.ok("made" in answer);
  return answer;
};
const deny = (status: ReviewOutcome["status"]): ReviewOutcome => ({ allowed: false, ...(status && { status }) });

interface Row {
  name: string;
  left: ReviewOutcome;
  right: ReviewOutcome;
  differingAspects: string[];
}
const rows = readRows<Row[]>(import.meta.filename);

describe("an answer", () => {
  it("an answer is compared by the object after the patch, not by the patch", () => {
    const replaced = answerWith({
      allowed: true,
      patch: [{ op: "replace", path: "/data", value: { a: "1", b: "2" } }],
    });
    const added = answerWith({ allowed: true, patch: [{ op: "add", path: "/data/b", value: "2" }] });
    assert.deepEqual(listDifferingAspects(replaced, added), []);
    assert.deepEqual(listDifferingAspects(readRecorded(mutatingCase), added), []);
    assert.equal(replaced.made.verdict, "changed");
  });

  it("an answer is allowed, not changed, if the patch changes nothing", () => {
    const idle = answerWith({ allowed: true, patch: [{ op: "replace", path: "/data/a", value: "1" }] });
    assert.equal(idle.made.verdict, "allowed");
    assert.deepEqual(listDifferingAspects(idle, readRecorded({ admitted: true })), []);
  });

  const status = { code: 403, reason: "Forbidden", message: "no" };
  for (const { name, left, right, differingAspects } of rows)
    it(`differs in ${name}`, () =>
      assert.deepEqual(listDifferingAspects(answerWith(left), answerWith(right)), differingAspects));

  it("an answer differs in the mode only if the rule denies", () => {
    const denied = answerWith(deny(status));
    const allowed = answerWith({ allowed: true });
    assert.deepEqual(listDifferingAspects({ ...denied, mode: "warn" }, { ...denied, mode: "enforce" }), ["mode"]);
    assert.deepEqual(listDifferingAspects({ ...allowed, mode: "warn" }, { ...allowed, mode: "enforce" }), []);
    assert.deepEqual(listDifferingAspects(denied, { ...denied, mode: "enforce" }), []);
  });

  it("an answer from a recording without code and reason has the default code and reason", () => {
    assert.deepEqual(listDifferingAspects(readRecorded({ refused: "no" }), answerWith(deny(status))), []);
    assert.deepEqual(
      listDifferingAspects(
        readRecorded({ refused: "no", reason: null }),
        answerWith(deny({ code: 403, message: "no" })),
      ),
      [],
    );
  });

  it("an answer's details are compared with those of a recording, but not with a hand-written case", () => {
    const detailed = answerWith(deny({ ...status, details: { name: "a" } }));
    assert.deepEqual(listDifferingAspects(readRecorded({ refused: "no" }), detailed), []);
    assert.deepEqual(listDifferingAspects(readRecorded({ refused: "no", recorded: {} }), detailed), ["details"]);
  });

  it("an answer from a recording has its warnings limited as in a response", () => {
    const warnings = ["a\nb", "a\nb"];
    assert.deepEqual(
      listDifferingAspects(readRecorded({ admitted: true, warnings }), answerWith({ allowed: true, warnings })),
      [],
    );
  });

  for (const [what, answer, expected] of [
    [
      "a Status for a missing phase",
      { kind: "Status", code: 404, message: "there is nothing here" },
      { absent: "has nothing to mutate" },
    ],
    [
      "a Status of a failure",
      { kind: "Status", code: 500, message: "no answer is recorded" },
      { fault: "no answer is recorded" },
    ],
    ["another object", { hello: 1 }, { fault: 'its answer is not an AdmissionReview: {"hello":1}' }],
    ["nothing", undefined, { fault: "its answer is not an AdmissionReview: undefined" }],
    [
      "a patch that removes a missing field",
      buildReviewResponse(review, { allowed: true, patch: [{ op: "remove", path: "/spec/a" }] }),
      { fault: /^its patch can't be applied: / },
    ],
    [
      "a patch that is not a JSON patch",
      { kind: "AdmissionReview", response: { uid: review.request.uid, allowed: true, patch: "e30" } },
      { fault: /^its patch can't be applied: / },
    ],
  ] as const)
    it(`may be ${what}`, () => {
      const found = parseReplayedReviewOutcome(answer, mutatingCase, review.request.uid);
      if ("fault" in expected && expected.fault instanceof RegExp) {
        assert.ok("fault" in found);
        assert.match(found.fault, expected.fault);
      } else assert.deepEqual(found, expected);
    });

  it("an answer is unknown for a case without an outcome", () =>
    assert.deepEqual(readRecordedAnswer({ name: "is replayed", validate: {} }), {
      fault: "it has no recorded answer",
    }));
});
