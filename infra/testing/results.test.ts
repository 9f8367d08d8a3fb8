import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readRows } from "../../test/rows.ts";
import { formatJunit, formatTestResult, formatTestSummary, type TestResult, toExitCode } from "./results.ts";

const rows = readRows<{ results: TestResult[]; lines: string; junit: string }>(import.meta.filename);
const { results: all, lines, junit } = rows;
const [passed, failed, skipped, notEvaluated] = all as [TestResult, TestResult, TestResult, TestResult];

describe("the results of tests", () => {
  it("the results of tests are printed in lines, with the position of each failure", () => {
    assert.equal(all.map(formatTestResult).join(""), lines);
    assert.equal(formatTestSummary(all, "test"), "4 tests: 1 passed, 1 failed, 1 not evaluated, 1 skipped\n");
  });

  it("the results of tests are printed as JUnit XML, with a suite for each rule", () => {
    assert.equal(formatJunit(all, { now: new Date("2026-11-22T01:02:03.456Z") }), junit);
  });

  it("a hostile name can't begin a line of the results or write a command for a GitHub or Azure pipeline", () => {
    const name = "a\n::error::x\r\u001b[31m\u2028##vso[x]";
    const hostile: TestResult[] = [
      { file: name, name, result: "failed", because: [name] },
      { rule: name, file: name, name, result: "not evaluated", because: [name] },
    ];
    for (const line of [...hostile.map(formatTestResult), formatJunit(hostile)].join("").split("\n")) {
      assert.match(line, /^$|^ *<|^(failed|not evaluated) {2}|^ {8}/);
      assert.doesNotMatch(line, /^\s*::|\p{Cc}|\u2028|##\w*\[/u);
    }
  });

  const codes: [results: TestResult[], code: number][] = [
    [[], 0],
    [[passed, skipped], 0],
    [[passed, failed], 1],
    [[failed, notEvaluated], 3],
  ];
  for (const [results, code] of codes)
    it(`${results.map(({ result }) => result).join(", ") || "no results"} have the exit code ${code}`, () =>
      assert.equal(toExitCode(results), code));
});
