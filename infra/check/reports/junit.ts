import { escapeUnsafeCharacters } from "../../cli/terminal.ts";
import { formatObjectName, getReportedObject, type ObjectCheckResult } from "../evaluation/object-evaluation.ts";
import { type CheckResultReportWriter, formatDenial, getDenialLine } from "./check-report.ts";

/** A `<testsuite>` of a report in the format of JUnit. */
export interface JunitTestSuite {
  name: string;
  cases: TestCase[];
  /** The warnings of a JUnit suite, written to its element `<system-out>`. */
  warnings: string[];
}

/** An element `testcase` of the report. */
interface TestCase {
  /** The attribute `classname`. */
  object: string;
  /** The attribute `name`. */
  rule: string;
  failure?: TestFailure;
  error?: TestFailure;
  isSkipped?: boolean;
}

interface TestFailure {
  /** The attribute `message` of a JUnit failure: the refusal or error on one line. */
  message: string;
  type: string;
  /** The content of the `<failure>` or `<error>` element: the full message, with file and line. */
  text: string;
}

/** The limit for suites in memory, in characters. A suite starts with its test count, so it is written as a whole. */
const maxCharacters = 4 * 1024 * 1024;

/**
 * Writes a test for each rule that evaluated an object, in a suite for each file, or for each kind if there are no
 * files. Denials are failures, undecided objects are errors, warnings are output of the suite. The XML fits the schemas
 * of both Ant and Jenkins' xUnit plugin. With very many findings, one file may have several suites.
 */
export const createJunitReport = (now = new Date(), maxLength = maxCharacters): CheckResultReportWriter => {
  const timestamp = formatTimestamp(now);
  const suites = new Map<string, JunitTestSuite>();
  /**
   * The names of the tests so far: some viewers show only the first of several tests with the same name, and an
   * object may be in two files.
   */
  const seen = new Set<string>();
  let length = 0;
  let id = 0;
  let head = begin;
  const addResult = (result: ObjectCheckResult) => {
    const name = getSuiteName(result);
    const suite = suites.get(name) ?? { name, cases: [], warnings: [] };
    suites.set(name, suite);
    const cases = listTestCases(result).map((single): TestCase => {
      if (result.file === undefined) return single;
      const key = JSON.stringify([single.object, single.rule]);
      if (seen.has(key)) return { ...single, rule: `${single.rule} at ${result.file}:${result.line ?? 1}` };
      seen.add(key);
      return single;
    });
    const warnings = result.warnings.map(({ rule, text }) => `${formatObjectName(result)}: ${rule} warns: ${text}`);
    for (const testCase of cases) suite.cases.push(testCase);
    for (const text of warnings) suite.warnings.push(text);
    for (const { object, rule, failure, error } of cases)
      length += object.length + rule.length + ((failure ?? error)?.text.length ?? 0) + overhead;
    for (const text of warnings) length += text.length;
  };
  const flushSuites = (): string => {
    const written = [...suites.values()].map((suite) => formatSuite(suite, { id: id++, timestamp }));
    suites.clear();
    length = 0;
    const text = `${head}${written.join("")}`;
    head = "";
    return text;
  };
  return {
    add: ({ checked }) => {
      addResult(checked);
      return length > maxLength ? flushSuites() : "";
    },
    end: ({ unreadableInputs }) => {
      for (const { checked } of unreadableInputs) addResult(checked);
      return [flushSuites(), end];
    },
  };
};

export const formatJunitSuites = (suites: readonly JunitTestSuite[], now = new Date()): string => {
  const timestamp = formatTimestamp(now);
  return [begin, ...suites.map((suite, id) => formatSuite(suite, { id, timestamp })), end].join("");
};

const [begin, end] = [`<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n`, "</testsuites>\n"];

const formatTimestamp = (time: Date) => time.toISOString().slice(0, 19);

/** The estimated length of a test's XML tags and attributes, in characters. */
const overhead = 100;

const getSuiteName = (result: ObjectCheckResult): string => {
  const { apiVersion, kind } = getReportedObject(result);
  return result.file === "-" ? "standard input" : (result.file ?? `${apiVersion} ${kind}`);
};

/** Returns an object's test cases: one for each rule that matched the object. */
const listTestCases = (result: ObjectCheckResult): TestCase[] => {
  const object = formatObjectName(result);
  const failed = result.denials.map((denial): TestCase => {
    const place = [result.file, getDenialLine(result, denial)].filter((part) => part !== undefined).join(":");
    const text = `${place && `${place}: `}${formatDenial(denial)}`;
    return { object, rule: denial.rule, failure: { message: denial.message, type: denial.reason || "Denied", text } };
  });
  const [first, ...more] = result.undecided;
  const message = more.length > 0 ? `${first}, and ${more.length} more` : first;
  const text = result.undecided.join("\n");
  const undecided: TestCase[] =
    message === undefined ? [] : [{ object, rule: "postern check", error: { message, type: "Undecided", text } }];
  const passedRules = new Set([...result.passed, ...result.changes.map(({ rule }) => rule)]);
  for (const { rule } of result.denials) passedRules.delete(rule);
  const passed = [...passedRules].map((rule): TestCase => ({ object, rule }));
  const cases = [...failed, ...undecided, ...passed];
  // An object that no rule matches still counts as a test.
  return cases.length > 0 ? cases : [{ object, rule: "postern check" }];
};

const formatCounts = (cases: TestCase[]): string => {
  const [failures, errors] = [cases.filter(({ failure }) => failure), cases.filter(({ error }) => error)];
  return formatAttributes({ tests: cases.length, failures: failures.length, errors: errors.length, time: 0 });
};

/** Returns the element `testsuite` with the test cases of a file. */
const formatSuite = (
  { name, cases, warnings }: JunitTestSuite,
  { id, timestamp }: { id: number; timestamp: string },
): string => {
  const about = formatAttributes({ name, id, package: "postern", timestamp, hostname: "localhost" });
  const written = cases.map(({ object, rule, failure, error, isSkipped }) => {
    const inside = [
      ...(failure ? [formatFailure("failure", failure)] : []),
      ...(error ? [formatFailure("error", error)] : []),
      ...(isSkipped ? ["<skipped></skipped>"] : []),
    ].join("");
    return `    <testcase ${formatAttributes({ classname: object, name: rule, time: 0 })}>${inside}</testcase>\n`;
  });
  const output = `    <system-out>${escapeText(warnings.join("\n"))}</system-out>\n    <system-err></system-err>\n`;
  return `  <testsuite ${about} ${formatCounts(cases)}>\n    <properties></properties>\n${written.join("")}${output}  </testsuite>\n`;
};

const formatFailure = (element: string, { message, type, text: full }: TestFailure): string =>
  `<${element} ${formatAttributes({ message, type })}>${escapeText(full)}</${element}>`;

const formatAttributes = (values: Record<string, string | number>): string =>
  Object.entries(values)
    .map(([name, value]) => `${name}="${escapeText(String(value))}"`)
    .join(" ");

/**
 * Escapes a text for XML, on one line that is safe for a terminal or a pipeline's log; parsed, it is the same text.
 * Characters that XML doesn't allow even when escaped become U+FFFD.
 */
const escapeText = (value: string): string =>
  escapeUnsafeCharacters(
    value
      .toWellFormed()
      // biome-ignore lint/suspicious/noControlCharactersInRegex: it is these that XML doesn't allow
      .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd")
      .replaceAll("&", "&amp;")
      .replaceAll("<", "&lt;")
      .replaceAll(">", "&gt;")
      .replaceAll('"', "&quot;"),
    (character) => `&#${character.charCodeAt(0)};`,
  );
