import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { packageRoot } from "../../infra/cli/roots.ts";
import { minors, newestMinor } from "../control-plane/binaries.ts";
import { readRows } from "../rows.ts";
import type { RuleCaseResults } from "./cases/cases.ts";
import type { PortParityResult } from "./parity.ts";
import {
  areAsExpected,
  chooseComparedMinors,
  describeCaseResults,
  findReportedRun,
  insertParityReport,
  listReportedVersions,
  type MinorParityResults,
} from "./parity-report.ts";
import { listRulesThatReplacePlugins } from "./plugins.ts";

// The results that the tests describe, and the text that describes `equalCases`, from parity-report.test.yaml.
const { ruleParity, equalCases, unequalCases, reportOfEqualCases } = readRows<
  Record<"equalCases" | "unequalCases", RuleCaseResults> & { ruleParity: PortParityResult; reportOfEqualCases: string }
>(import.meta.filename);

it("the compared minors are the newest one by default, all with --write, or those of --minor, sorted by age", () => {
  const writes = true;
  assert.deepEqual(chooseComparedMinors(undefined, !writes), [newestMinor]);
  assert.deepEqual(chooseComparedMinors(undefined, writes), minors);
  assert.deepEqual(chooseComparedMinors("1.37,1.33,1.36", !writes), ["1.33", "1.36", "1.37"]);
});

describe("the results of cases", () => {
  it("the results of cases have a row for each rule, and the reasons why cases could not be sent", () => {
    assert.equal(describeCaseResults([equalCases]), reportOfEqualCases);
  });

  it("the results of cases say why a rule has no plugin with which its answers are compared", () => {
    const { pluginComparison: _, ...withoutComparison } = equalCases;
    const withoutPlugin = { ...withoutComparison, whyNotCompared: "Kubernetes v1.35.4 has no plugin AlwaysPullImages" };
    assert.match(
      describeCaseResults([withoutPlugin]),
      /^- always-pull-images: Kubernetes v1.35.4 has no plugin AlwaysPullImages$/m,
    );
  });

  it("the results of cases show both answers for each difference, and are as expected only without any", () => {
    const text = describeCaseResults([equalCases, unequalCases]);
    assert.ok(
      text.includes(
        `a-rule, "refuses": the API server's answer (+) differs from what the case states (-)\n- no\n+ yes\n`,
      ),
    );
    assert.ok(text.includes(`a-rule, "admits": the API server's answer (+) differs from upstream (-)\n- yes\n+ no\n`));
    // `outcomes` has the results of cases that were recorded from a removed plugin.
    const casesUnequalInOutcomes = { ...unequalCases, differences: [] };
    assert.equal(casesUnequalInOutcomes.outcomes?.differences.length, 1);
    const results = [[equalCases], [equalCases, unequalCases], [casesUnequalInOutcomes]];
    assert.deepEqual(results.map(areAsExpected), [true, false, false]);
  });
});

describe("the page of results", () => {
  const page = "# Parity\n\nA list.\n\nMore.\n";
  const names = ["old-rule", "a-rule", "always-pull-images"];
  const run = { requests: 10, seed: 7, names };
  const older = {
    kubernetes: "v1.35.4",
    rules: [
      { ...ruleParity, rule: "old-rule" },
      { ...ruleParity, unexplained: 2 },
    ],
    cases: [],
  };
  const newest = { kubernetes: "v1.36.3", rules: [ruleParity], cases: [equalCases] };
  /** The page after the results of both minors were written. */
  const fullPage = insertParityReport(page, { ...run, runs: [older, newest] });
  const listNewLines = (text: string) => {
    const lines = new Set(fullPage.split("\n"));
    return text.split("\n").filter((line) => !lines.has(line));
  };

  it("the page of results has its command, the differences with reasons, and the calls that conditions save", () => {
    assert.match(fullPage, /^ {4}npm run parity -- --minor 1\.35,1\.36 --requests 10 --seed 7 --write$/m);
    assert.match(fullPage, /kube-apiserver v1\.36\.3/);
    assert.match(fullPage, /^\| rule \(.*\) \| v1\.35\.4 \| v1\.36\.3 \| calls of the rule \|/m);
    // For each minor: the numbers of equal, known and unexplained answers.
    assert.match(fullPage, /^\| a-rule \| 9 \/ 1 \/ 2 \| 9 \/ 1 \/ 0 \| 3 \| 2 \| 8 \| 63% \|$/m);
    assert.match(fullPage, /^\| old-rule \| 9 \/ 1 \/ 0 \| - \| - \| - \| - \| - \|$/m);
    assert.match(fullPage, /- for a reason \(old-rule, a-rule\)/);
    assert.match(fullPage, /^\| always-pull-images \| 4 \| 3 \| 1 \| 2 \| - \|$/m);
    assert.deepEqual(findReportedRun(fullPage), { requests: 10, seed: 7 });
    assert.deepEqual(listReportedVersions(fullPage), ["v1.35.4", "v1.36.3"]);
    assert.deepEqual([findReportedRun(page), listReportedVersions(page)], [undefined, []]);
  });

  it("the page of results has the report at its end, and isn't changed if it is written again", () => {
    assert.ok(fullPage.startsWith(page));
    const edited = `${fullPage}\nA paragraph below.\n`;
    assert.equal(insertParityReport(edited, { ...run, runs: [older, newest] }), edited);
  });

  it("the page of results has a newer version of a minor in place of the older version of this minor", () => {
    const updatedPage = insertParityReport(fullPage, {
      ...run,
      seed: 8,
      runs: [older, { ...newest, kubernetes: "v1.36.4" }],
    });
    assert.equal(updatedPage.split("## Generated requests").length, 2);
    assert.equal(updatedPage, fullPage.replaceAll("v1.36.3", "v1.36.4").replace("--seed 7", "--seed 8"));
  });

  it("the page of results changes only in the lines about the rules that were compared", () => {
    const runs = [{ ...newest, rules: [{ ...ruleParity, equal: 8, known: { "for another": 2 } }], cases: [] }];
    assert.deepEqual(listNewLines(insertParityReport(fullPage, { ...run, runs })), [
      "| a-rule | 9 / 1 / 2 | 8 / 2 / 0 | 3 | 2 | 8 | 63% |",
      "- for another (a-rule)",
    ]);
  });

  it("the page of results gets a column for a newer minor, and the newer minor's numbers of calls", () => {
    const next = {
      kubernetes: "v1.37.2",
      rules: [{ ...ruleParity, calls: { made: 1, acted: 1, withoutConditions: 2 } }],
      cases: [],
    };
    const nextReport = insertParityReport(fullPage, { ...run, runs: [next] });
    assert.match(nextReport, /^\| rule \(.*\) \| v1\.35\.4 \| v1\.36\.3 \| v1\.37\.2 \| calls of the rule \|/m);
    assert.match(nextReport, /^\| a-rule \| 9 \/ 1 \/ 2 \| 9 \/ 1 \/ 0 \| 9 \/ 1 \/ 0 \| 1 \| 1 \| 2 \| 50% \|$/m);
    assert.match(nextReport, /^\| old-rule \| 9 \/ 1 \/ 0 \| - \| - \| - \| - \| - \| - \|$/m);
    assert.match(nextReport, /^\| always-pull-images \| 4 \| 3 \| 1 \| 2 \| - \|$/m);
  });

  it("the page of results keeps its table of cases after a run with only an older minor", () => {
    const runs = [{ ...older, cases: [{ ...equalCases, cases: 5 }] }];
    assert.equal(insertParityReport(fullPage, { ...run, runs }), fullPage);
  });

  it("the page of results keeps a known difference until all minors were compared without it", () => {
    const equal = { ...ruleParity, equal: 10, known: {} };
    const listReasons = (runs: MinorParityResults[]) =>
      insertParityReport(fullPage, { ...run, runs }).match(/^- for .*$/gm) ?? [];
    assert.deepEqual(listReasons([{ ...newest, rules: [equal] }]), ["- for a reason (old-rule, a-rule)"]);
    const bothMinors = [older, newest].map((minor) => ({ ...minor, rules: [equal] }));
    assert.deepEqual(listReasons(bothMinors), ["- for a reason (old-rule)"]);
  });

  it("the page of results loses the lines of a rule that was removed from the catalogue", () => {
    const text = insertParityReport(fullPage, { ...run, runs: [newest], names: ["a-rule"] });
    assert.doesNotMatch(text, /old-rule|always-pull-images/);
  });

  it("the page of results changes only in its table of cases after a run without requests", () => {
    const cases = [{ ...equalCases, cases: 5 }];
    const runs = [{ kubernetes: "v1.36.4", rules: [], cases }];
    const updatedPage = insertParityReport(fullPage, { ...run, runs, requests: 0, seed: 8 });
    const wanted = fullPage
      .replace("| always-pull-images | 4 |", "| always-pull-images | 5 |")
      .replace("every rule, sent to kube-apiserver v1.36.3", "every rule, sent to kube-apiserver v1.36.4");
    assert.equal(updatedPage, wanted);
  });

  it("the page of results keeps a line if a later run only lists an API server's errors in another order", () => {
    const insert = (text: string, errors: string) => {
      const notSent = [{ name: "has no name", reason: `Pod "a" is invalid: ${errors}` }];
      return insertParityReport(text, { ...run, runs: [{ ...newest, cases: [{ ...equalCases, notSent }] }] });
    };
    const before = insert(fullPage, "[spec: Required, status: Wrong]");
    assert.ok(before.includes("[spec: Required, status: Wrong]"));
    assert.equal(insert(before, "[status: Wrong, spec: Required]"), before);
  });

  it("the page of results shows for each rule that reimplements a plugin no unexplained differences", async () => {
    const text = await readFile(join(packageRoot, "docs/background/parity.md"), "utf8");
    const [written] = /<!-- Written by npm run parity -- --write\. -->[\s\S]*<!-- End of parity\. -->/.exec(text) ?? [];
    assert.ok(written);
    for (const { name } of listRulesThatReplacePlugins(await readCatalogue()))
      assert.match(
        written,
        new RegExp(`^\\| ${name} \\| (- \\| )*\\d+ / \\d+ / 0 \\| ((\\d+ / \\d+ / 0|\\d+|-) \\| )*(\\d+%|-) \\|$`, "m"),
      );
  });
});
