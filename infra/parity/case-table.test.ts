import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { allAsSaid, hearingsSection, hearingsTable } from "./case-table.ts";
import type { RuleHearing } from "./cases.ts";

const leftOut = [{ name: "reads a ghost", reason: 'Ghost "a": there are none' }];
const fine: RuleHearing = {
  ...{
    rule: "always-pull-images",
    cases: 4,
    asSaid: 3,
    beside: { equal: 1, known: { "another code": 1 }, leftOut },
  },
  ...{ notReceivable: [{ name: "has no name", reason: "never arrives without metadata.name" }], differences: [] },
};
const outcomes = { rule: "", cases: 3, asSaid: 2, notReceivable: [] };
const wrong: RuleHearing = {
  ...{ rule: "a-rule", cases: 1, asSaid: 0, notReceivable: [] },
  differences: [{ name: "refuses", from: "case", diff: "- no\n+ yes" }],
  outcomes: { ...outcomes, differences: [{ name: "admits", from: "upstream", diff: "- yes\n+ no" }] },
};

describe("what became of the cases", () => {
  it("is a row for each rule, and why some could not be asked", () => {
    assert.equal(
      hearingsTable([fine]),
      [
        "",
        "RULE                CASES  AS SAID  NOT RECEIVABLE  AS UPSTREAM  OUTCOMES",
        "always-pull-images      4        3               1            2         -",
        "",
        "Not receivable:",
        "",
        '- always-pull-images, "has no name": never arrives without metadata.name',
        "",
        "Not asked beside upstream:",
        "",
        '- always-pull-images, "reads a ghost": Ghost "a": there are none',
        "",
      ].join("\n"),
    );
    assert.match(hearingsSection([fine]), /^\| always-pull-images \| 4 \| 3 \| 1 \| 2 \| - \|$/m);
  });

  it("says where there is no plugin to ask", () => {
    const { beside: _, ...rest } = fine;
    const lonely = { ...rest, alone: "Kubernetes v1.35.4 has no plugin AlwaysPullImages" };
    assert.match(hearingsTable([lonely]), /^- always-pull-images: Kubernetes v1.35.4 has no plugin AlwaysPullImages$/m);
  });

  it("shows both sides of what is otherwise", () => {
    const text = hearingsTable([fine, wrong]);
    assert.ok(
      text.includes(
        `a-rule, "refuses": the API server's answer (+) differs from what the case says (-)\n- no\n+ yes\n`,
      ),
    );
    assert.ok(text.includes(`a-rule, "admits": the API server's answer (+) differs from upstream (-)\n- yes\n+ no\n`));
    assert.deepEqual([[fine], [fine, wrong], [{ ...wrong, differences: [] }]].map(allAsSaid), [true, false, false]);
  });
});
