import { type Suite, writeSuites } from "../check/reports/junit.ts";
import { counted } from "../cli/progress.ts";
import { clean } from "../cli/terminal.ts";

/** What came of a case or of another test. */
export interface TestResult {
  /** The rule that is tested; of policies none. */
  rule?: string;
  file: string;
  line?: number;
  name: string;
  /** Not evaluated is what can't be told: a rule doesn't load, or a policy asks what the case doesn't say. */
  result: "passed" | "failed" | "skipped" | "not evaluated";
  /** What differs, or why there is no result, line by line. */
  because: string[];
}

/** One result in one line, and what there is to say of it below: of a rule's tests, the place first. */
export const lineOf = (one: TestResult): string => {
  const { name, result, because, rule } = one;
  const isWrong = result === "failed" || result === "not evaluated";
  const lines = [...(rule !== undefined && isWrong ? [placeOf(one)] : []), ...because];
  return `${result.padEnd(6)}  ${clean(name)}\n${lines.map((line) => `        ${clean(line)}\n`).join("")}`;
};

const placeOf = ({ file, line }: TestResult): string => (line === undefined ? file : `${file}:${line}`);

/** The last line. `what` is what is counted, for instance `case`. */
export const summaryOf = (all: readonly TestResult[], what: string): string => {
  const count = (result: TestResult["result"]) => all.filter((one) => one.result === result).length;
  const others = (["failed", "not evaluated", "skipped"] as const).filter((result) => count(result) > 0);
  const parts = [`${count("passed")} passed`, ...others.map((result) => `${count(result)} ${result}`)];
  return `${counted(all.length, what)}: ${parts.join(", ")}\n`;
};

/** The exit code: 1 where something is not as a case says, 3 where something can't be evaluated. */
export const codeOf = (all: readonly TestResult[]): number => {
  const has = (wanted: TestResult["result"]) => all.some(({ result }) => result === wanted);
  return has("not evaluated") ? 3 : has("failed") ? 1 : 0;
};

/** The results for JUnit: a suite for each rule, or for each file of cases where no rule is named. */
export const toJunit = (all: readonly TestResult[], now = new Date()): string => {
  const suites = [...Map.groupBy(all, ({ rule, file }) => rule ?? file)].map(([name, results]): Suite => {
    const cases = results.map((one) => {
      const { name: test, result, because } = one;
      const place = placeOf(one);
      const wrong = { message: place, type: result, text: [place, ...because].join("\n") };
      return {
        ...{ object: name, rule: test },
        ...(result === "failed" && { failure: wrong }),
        ...(result === "not evaluated" && { error: wrong }),
        ...(result === "skipped" && { isSkipped: true }),
      };
    });
    return { name, cases, said: [] };
  });
  return writeSuites(suites, now);
};
