import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { buildCatalogueReadme, readCatalogue } from "../../infra/catalogue/registry.ts";
import { getFunctionsFolder } from "../../infra/catalogue/sources.ts";
import { minors, newestMinor } from "../control-plane/binaries.ts";
import { readRows } from "../rows.ts";
import type { RuleCaseResults } from "./cases/cases.ts";
import type { PortParityResult } from "./parity.ts";
import { areAsExpected, chooseComparedMinors, describeCaseResults, insertParityReport } from "./parity-report.ts";
import { listPluginPorts } from "./plugins.ts";

const { parity, fine, wrong, text } = readRows<{
  parity: PortParityResult;
  fine: RuleCaseResults;
  wrong: RuleCaseResults;
  text: string;
}>(import.meta.filename);

describe("the compared minors", () => {
  it("are the newest, all or the stated ones, the oldest first", () => {
    assert.deepEqual(chooseComparedMinors(undefined, false), [newestMinor]);
    assert.deepEqual(chooseComparedMinors(undefined, true), minors);
    assert.deepEqual(chooseComparedMinors("1.37,1.33,1.36", false), ["1.33", "1.36", "1.37"]);
  });
});

describe("the results of cases", () => {
  it("have a row for each rule, and the reasons why cases could not be sent", () => {
    assert.equal(describeCaseResults([fine]), text);
  });

  it("say why a rule has no plugin to compare with", () => {
    const { beside: _, ...rest } = fine;
    const lonely = { ...rest, alone: "Kubernetes v1.35.4 has no plugin AlwaysPullImages" };
    assert.match(
      describeCaseResults([lonely]),
      /^- always-pull-images: Kubernetes v1.35.4 has no plugin AlwaysPullImages$/m,
    );
  });

  it("show both sides of each difference", () => {
    const text = describeCaseResults([fine, wrong]);
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
  const older = {
    kubernetes: "v1.35.4",
    rules: [
      { ...parity, rule: "old-rule" },
      { ...parity, unexplained: 2 },
    ],
    cases: [],
  };
  const newest = { kubernetes: "v1.36.3", rules: [parity], cases: [fine] };
  const once = insertParityReport(page, { runs: [older, newest], requests: 10, seed: 7 });

  it("has the command that wrote it, the differences with reasons, and the calls that conditions save", () => {
    assert.match(once, /^ {4}npm run parity -- --minor 1\.35,1\.36 --requests 10 --seed 7 --write$/m);
    assert.match(once, /kube-apiserver v1\.36\.3/);
    assert.match(once, /^\| rule \| v1\.35\.4 \| v1\.36\.3 \| calls \|/m);
    assert.match(once, /^\| a-rule \| 9 \/ 1 \/ 2 \| 9 \/ 1 \/ 0 \| 3 \| 2 \| 8 \| 63% \|$/m);
    assert.match(once, /^\| old-rule \| 9 \/ 1 \/ 0 \| - \| - \| - \| - \| - \|$/m);
    assert.match(once, /- for a reason \(a-rule, old-rule\)/);
    assert.match(once, /^\| always-pull-images \| 4 \| 3 \| 1 \| 2 \| - \|$/m);
  });

  it("is appended to the page, and is replaced by the next report", () => {
    assert.ok(once.startsWith(page));
    const edited = `${once}\nA paragraph below.\n`;
    const twice = insertParityReport(edited, { runs: [{ ...newest, kubernetes: "v1.36.4" }], requests: 10, seed: 8 });
    assert.equal(twice.split("## Parity").length, 2);
    assert.doesNotMatch(twice, /v1\.36\.3/);
    assert.ok(twice.startsWith(page) && twice.endsWith("\nA paragraph below.\n"));
  });

  it("has only another table of cases after a run without requests", () => {
    const cases = [{ ...fine, cases: 5 }];
    const runs = [{ kubernetes: "v1.36.4", rules: [], cases }];
    const twice = insertParityReport(once, { runs, requests: 0, seed: 8 });
    const wanted = once
      .replace("| always-pull-images | 4 |", "| always-pull-images | 5 |")
      .replace("every rule, sent to kube-apiserver v1.36.3", "every rule, sent to kube-apiserver v1.36.4");
    assert.equal(twice, wanted);
  });

  it("exists for every port without unexplained differences, and npm run fix keeps it", async () => {
    const present = await readFile(join(getFunctionsFolder(), "README.md"), "utf8");
    const catalogue = await readCatalogue();
    const { wanted } = await buildCatalogueReadme(catalogue.slice(1));
    const [report] =
      /<!-- Written by npm run parity -- --write\. -->[\s\S]*<!-- End of parity\. -->/.exec(present) ?? [];
    assert.ok(report);
    assert.notEqual(wanted, present);
    assert.ok(wanted.includes(report));
    for (const { name } of listPluginPorts(catalogue))
      assert.match(
        report,
        new RegExp(`^\\| ${name} \\| (- \\| )*\\d+ / \\d+ / 0 \\| ((\\d+ / \\d+ / 0|\\d+|-) \\| )*(\\d+%|-) \\|$`, "m"),
      );
  });
});
