import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Case } from "#lib/recording/recording.ts";
import type { ReviewOutcome } from "#lib/review.ts";
import { readRows } from "../../test/rows.ts";
import { describeCaseDifferences, formatCaseDiff } from "./case-differences.ts";

interface Row {
  name: string;
  case: Partial<Case>;
  outcome: ReviewOutcome;
}
const { same, different } = readRows<{ same: Row[]; different: (Row & { lines: string[] })[] }>(import.meta.filename);
const toDecision = (outcome: ReviewOutcome) => ({ outcome, refused: !outcome.allowed, operations: 0 });

describe("a rule", () => {
  for (const { name, case: ruleCase, outcome } of same)
    it(`agrees with a case: it ${name}`, () => {
      assert.deepEqual(formatCaseDiff({ name, ...ruleCase }, toDecision(outcome)), []);
    });

  for (const { name, case: ruleCase, outcome, lines } of different)
    it(`differs from a case: it ${name}`, () => {
      assert.ok(describeCaseDifferences({ name, ...ruleCase }, toDecision(outcome)).length > 0);
      const expected = ["the case says (-), the rule does (+):", ...lines];
      assert.deepEqual(formatCaseDiff({ name, ...ruleCase }, toDecision(outcome)), expected);
    });
});
