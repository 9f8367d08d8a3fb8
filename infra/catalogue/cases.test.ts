import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { RuleDecision } from "#lib/decide.ts";
import type { Case } from "#lib/recording/recording.ts";
import type { ReviewOutcome } from "#lib/review.ts";
import { describeDifferences, listDifferences } from "./case-differences.ts";

const toDecision = (outcome: ReviewOutcome): RuleDecision => ({ outcome, refused: !outcome.allowed, operations: 0 });
const toDenial = (message: string, code = 403, reason = "Forbidden") =>
  toDecision({ allowed: false, status: { message, code, reason } });
const pod = { metadata: { name: "web", labels: { app: "web" } } };
const labelled = { metadata: { labels: { app: "api" }, name: "web" } };
const toLabelChange = (value: string) =>
  toDecision({ allowed: true, patch: [{ op: "replace", path: "/metadata/labels/app", value }] });

describe("what a rule does", () => {
  const same: [name: string, entry: Partial<Case>, decision: RuleDecision][] = [
    ["admits", { validate: pod, admitted: true }, toDecision({ allowed: true })],
    ["refuses", { validate: pod, refused: "nope" }, toDenial("nope")],
    ["changes the object, whatever the order of its keys", { mutate: pod, becomes: labelled }, toLabelChange("api")],
    ["leaves the object alone", { mutate: pod, admitted: true }, toDecision({ allowed: true })],
  ];
  for (const [name, entry, decision] of same)
    it(`is what a case says: it ${name}`, () => {
      assert.deepEqual(describeDifferences({ name, ...entry }, decision), []);
    });

  const head = "the case says (-), the rule does (+):";
  const other: [name: string, entry: Partial<Case>, decision: RuleDecision, lines: string[]][] = [
    [
      "refuses instead of admitting",
      { validate: pod, admitted: true },
      toDenial("nope"),
      ["- admitted: true", "+ refused: nope", "+ code: 403", "+ reason: Forbidden"],
    ],
    [
      "admits instead of refusing, with a warning",
      { validate: pod, refused: "nope" },
      toDecision({ allowed: true, warnings: ["oh"] }),
      ["- refused: nope", "- code: 403", "- reason: Forbidden", "+ admitted: true", "+ warnings:", "+ - oh"],
    ],
    [
      "refuses in other words",
      { mutate: pod, refused: "nope", code: 422, reason: "Invalid" },
      toDenial("never", 422, "Invalid"),
      ["- refused: nope", "+ refused: never", "  code: 422", "  reason: Invalid"],
    ],
    [
      "changes the object otherwise",
      { mutate: pod, becomes: labelled },
      toLabelChange("db"),
      ["  becomes:", "    metadata:", "      labels:", "-       app: api", "+       app: db", "      name: web"],
    ],
  ];
  for (const [name, entry, decision, lines] of other)
    it(`is not what a case says: it ${name}`, () => {
      assert.ok(listDifferences({ name, ...entry }, decision).length > 0);
      assert.deepEqual(describeDifferences({ name, ...entry }, decision), [head, ...lines]);
    });
});
