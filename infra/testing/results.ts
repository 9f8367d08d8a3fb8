import { formatJunitSuites, type JunitTestSuite } from "../check/reports/junit.ts";
import { formatCount } from "../cli/progress.ts";
import { sanitizeTerminalText } from "../cli/terminal.ts";

/** Whether an admission policy was evaluated in a case. `because` says why it wasn't. */
export interface PolicyMatch {
  policy: string;
  matched: boolean;
  because?: string;
}

/** The result of one test of a rule or policy. */
export interface TestResult {
  /** The tested rule; undefined if policies were tested. */
  rule?: string;
  file: string;
  line?: number;
  name: string;
  /** "not evaluated": the rule can't be loaded, or a policy reads something that the case doesn't state. */
  result: "passed" | "failed" | "skipped" | "not evaluated";
  because: string[];
  /** Only in results of cases of admission policies. */
  policies?: PolicyMatch[];
}

/** Returns a result as a line, with lines for the place and the reasons of a failure. */
export const formatTestResult = (test: TestResult): string => {
  const { name, result, because, rule } = test;
  const isWrong = result === "failed" || result === "not evaluated";
  const lines = [...(rule !== undefined && isWrong ? [formatTestPlace(test)] : []), ...because];
  return `${result.padEnd(6)}  ${sanitizeTerminalText(name)}\n${lines.map((line) => `        ${sanitizeTerminalText(line)}\n`).join("")}`;
};

const formatTestPlace = ({ file, line }: TestResult): string => (line === undefined ? file : `${file}:${line}`);

/** Returns the last line of a test report, such as `3 cases: 2 passed, 1 failed`; `what` is the counted noun. */
export const formatTestSummary = (all: readonly TestResult[], what: string): string => {
  const count = (result: TestResult["result"]) => all.filter((test) => test.result === result).length;
  const others = (["failed", "not evaluated", "skipped"] as const).filter((result) => count(result) > 0);
  const parts = [`${count("passed")} passed`, ...others.map((result) => `${count(result)} ${result}`)];
  return `${formatCount(all.length, what)}: ${parts.join(", ")}\n`;
};

/** Returns the exit code of `postern test`: 1 if a test failed, 3 if something can't be evaluated. */
export const toExitCode = (all: readonly TestResult[]): number => {
  const hasResult = (wanted: TestResult["result"]) => all.some(({ result }) => result === wanted);
  if (hasResult("not evaluated")) return 3;
  return hasResult("failed") ? 1 : 0;
};

/**
 * Returns the results as JUnit XML. There is a suite for each rule, and for each file of cases without a rule. The
 * first suite contains the notes.
 */
export const formatJunit = (
  all: readonly TestResult[],
  { now = new Date(), notes = [] }: { now?: Date; notes?: readonly string[] } = {},
): string => {
  const suites = [...Map.groupBy(all, ({ rule, file }) => rule ?? file)].map(([suiteName, results]): JunitTestSuite => {
    const cases = results.map((testResult) => {
      const { name: testName, result, because } = testResult;
      const place = formatTestPlace(testResult);
      const problem = { message: place, type: result, text: [place, ...because].join("\n") };
      // `formatJunitSuites` writes `object` as the attribute classname of a test, and `rule` as its name.
      return {
        object: suiteName,
        rule: testName,
        ...(result === "failed" && { failure: problem }),
        ...(result === "not evaluated" && { error: problem }),
        ...(result === "skipped" && { isSkipped: true }),
      };
    });
    return { name: suiteName, cases, warnings: [] as string[] };
  });
  suites[0]?.warnings.push(...notes);
  return formatJunitSuites(suites, now);
};
