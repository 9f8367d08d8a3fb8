import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { buildCatalogueReadme, catalogueFolder, readCatalogue } from "../catalogue/registry.ts";
import type { RuleCaseResults } from "./cases/cases.ts";
import type { PortParityResult } from "./parity.ts";
import { listPluginPorts } from "./plugins.ts";
import { areAsExpected, describeCases, insertReport } from "./report.ts";

const parity: PortParityResult = {
  rule: "a-rule",
  plugin: "ARule",
  requests: 10,
  equal: 9,
  known: { "for a reason": 1 },
  unexplained: 0,
  failedConditions: {},
  calls: { made: 3, acted: 2, withoutConditions: 8 },
  differences: [],
};
const leftOut = [{ name: "reads a ghost", reason: 'Ghost "a": there are none' }];
const fine: RuleCaseResults = {
  rule: "always-pull-images",
  cases: 4,
  asSaid: 3,
  beside: { equal: 1, known: { "another code": 1 }, leftOut },
  notReceivable: [{ name: "has no name", reason: "never arrives without metadata.name" }],
  differences: [],
};
const outcomes = { rule: "", cases: 3, asSaid: 2, notReceivable: [] };
const wrong: RuleCaseResults = {
  rule: "a-rule",
  cases: 1,
  asSaid: 0,
  notReceivable: [],
  differences: [{ name: "refuses", from: "case", diff: "- no\n+ yes" }],
  outcomes: { ...outcomes, differences: [{ name: "admits", from: "upstream", diff: "- yes\n+ no" }] },
};

describe("the results of cases", () => {
  it("have a row for each rule, and the reasons why cases could not be sent", () => {
    assert.equal(
      describeCases([fine]),
      [
        "",
        "RULE                CASES  AS STATED  NOT RECEIVABLE  AS UPSTREAM  OUTCOMES",
        "always-pull-images      4          3               1            2         -",
        "",
        "Not receivable:",
        "",
        '- always-pull-images, "has no name": never arrives without metadata.name',
        "",
        "Not sent to upstream:",
        "",
        '- always-pull-images, "reads a ghost": Ghost "a": there are none',
        "",
      ].join("\n"),
    );
  });

  it("say why a rule has no plugin to compare with", () => {
    const { beside: _, ...rest } = fine;
    const lonely = { ...rest, alone: "Kubernetes v1.35.4 has no plugin AlwaysPullImages" };
    assert.match(describeCases([lonely]), /^- always-pull-images: Kubernetes v1.35.4 has no plugin AlwaysPullImages$/m);
  });

  it("show both sides of each difference", () => {
    const text = describeCases([fine, wrong]);
    assert.ok(
      text.includes(
        `a-rule, "refuses": the API server's answer (+) differs from what the case states (-)\n- no\n+ yes\n`,
      ),
    );
    assert.ok(text.includes(`a-rule, "admits": the API server's answer (+) differs from upstream (-)\n- yes\n+ no\n`));
    assert.deepEqual([[fine], [fine, wrong], [{ ...wrong, differences: [] }]].map(areAsExpected), [true, false, false]);
  });
});

describe("the report in the catalogue", () => {
  const page = "# The catalogue\n\nA list.\n\nMore.\n";
  const once = insertReport(page, { found: [parity], cases: [fine], version: "v1.36.3", seed: 7 });

  it("has the number of requests, the differences with reasons, and the calls that conditions save", () => {
    assert.match(once, /kube-apiserver v1\.36\.3/);
    assert.match(once, /\| a-rule \| 10 \| 9 \| 1 \| 0 \| 3 \| 2 \| 8 \| 63% \|/);
    assert.match(once, /- for a reason \(a-rule\)/);
    assert.match(once, /^\| always-pull-images \| 4 \| 3 \| 1 \| 2 \| - \|$/m);
  });

  it("is appended to the page, and is replaced by the next report", () => {
    assert.ok(once.startsWith(page));
    const edited = `${once}\nWhat somebody wrote below.\n`;
    const twice = insertReport(edited, { found: [parity], cases: [fine], version: "v1.36.4", seed: 8 });
    assert.equal(twice.split("## Parity").length, 2);
    assert.doesNotMatch(twice, /v1\.36\.3/);
    assert.ok(twice.startsWith(page) && twice.endsWith("\nWhat somebody wrote below.\n"));
  });

  it("exists for every port without unexplained differences, and npm run fix keeps it", async () => {
    const present = await readFile(join(catalogueFolder, "README.md"), "utf8");
    const catalogue = await readCatalogue();
    const { wanted } = await buildCatalogueReadme(catalogue.slice(1));
    const [report] =
      /<!-- Written by npx postern parity --write\. -->[\s\S]*<!-- End of parity\. -->/.exec(present) ?? [];
    assert.ok(report);
    assert.notEqual(wanted, present);
    assert.ok(wanted.includes(report));
    for (const { name } of listPluginPorts(catalogue))
      assert.match(report, new RegExp(`^\\| ${name} \\| 2000 \\| \\d+ \\| \\d+ \\| 0 \\|`, "m"));
  });
});
