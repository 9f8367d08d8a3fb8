import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { formatJunit, formatTestResult, formatTestSummary, type TestResult, toExitCode } from "./results.ts";

const file = "functions/a/cases.yaml";
const passed: TestResult = { rule: "a", file, line: 1, name: "admits", result: "passed", because: [] };
const failed: TestResult = {
  ...passed,
  line: 4,
  name: "refuses",
  result: "failed",
  because: ["- <a>", "+ \u001b[31mb"],
};
const skipped: TestResult = {
  ...passed,
  file: "functions/a/rule.test.ts",
  result: "skipped",
  because: ["Go 1.25 is not here"],
};
const unloaded: TestResult = {
  rule: "b",
  file: "functions/b/rule.ts",
  name: "loads",
  result: "not evaluated",
  because: ["it does not"],
};
const all = [passed, failed, skipped, unloaded];

describe("results of tests", () => {
  it("are printed in lines, with the position of each failure", () => {
    assert.deepEqual(all.map(formatTestResult), [
      "passed  admits\n",
      `failed  refuses\n        ${file}:4\n        - <a>\n        + ?[31mb\n`,
      "skipped  admits\n        Go 1.25 is not here\n",
      "not evaluated  loads\n        functions/b/rule.ts\n        it does not\n",
    ]);
    assert.equal(formatTestSummary(all, "test"), "4 tests: 1 passed, 1 failed, 1 not evaluated, 1 skipped\n");
  });

  it("are a suite for each rule in JUnit's XML", () => {
    const about = 'package="postern" timestamp="2026-11-22T01:02:03" hostname="localhost"';
    const rest = "    <system-out></system-out>\n    <system-err></system-err>\n  </testsuite>\n";
    assert.equal(
      formatJunit(all, new Date("2026-11-22T01:02:03.456Z")),
      `<?xml version="1.0" encoding="UTF-8"?>
<testsuites>
  <testsuite name="a" id="0" ${about} tests="3" failures="1" errors="0" time="0">
    <properties></properties>
    <testcase classname="a" name="admits" time="0"></testcase>
    <testcase classname="a" name="refuses" time="0"><failure message="${file}:4" type="failed">${file}:4
- &lt;a&gt;
+ \ufffd[31mb</failure></testcase>
    <testcase classname="a" name="admits" time="0"><skipped></skipped></testcase>
${rest}  <testsuite name="b" id="1" ${about} tests="1" failures="0" errors="1" time="0">
    <properties></properties>
    <testcase classname="b" name="loads" time="0"><error message="functions/b/rule.ts" type="not evaluated">functions/b/rule.ts
it does not</error></testcase>
${rest}</testsuites>
`,
    );
  });

  const codes: [results: TestResult[], code: number][] = [
    [[], 0],
    [[passed, skipped], 0],
    [[passed, failed], 1],
    [[failed, unloaded], 3],
  ];
  for (const [results, code] of codes)
    it(`${results.map(({ result }) => result).join(", ") || "of nothing"} end with ${code}`, () =>
      assert.equal(toExitCode(results), code));
});
