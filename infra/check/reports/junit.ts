import { type Checked, describeObject, getTarget } from "../evaluation/evaluation.ts";
import { formatDenial, lineOf, type Plain } from "./report.ts";

export interface Suite {
  name: string;
  cases: Case[];
  /** Warnings, written to `<system-out>`. */
  said: string[];
}

interface Case {
  /** The attribute `classname`. */
  object: string;
  /** The attribute `name`. */
  rule: string;
  failure?: Wrong;
  error?: Wrong;
  isSkipped?: boolean;
}

interface Wrong {
  /** On one line. */
  message: string;
  type: string;
  /** In full, with file and line. */
  text: string;
}

/** In characters: the most that suites take in memory. A suite starts with its test count, so it is written whole. */
const longest = 4 * 1024 * 1024;

/**
 * Writes a test for each rule that evaluated an object, in a suite for each file, or for each kind if there are no
 * files. Denials are failures, undecided objects are errors, warnings are output of the suite. The XML fits the schemas
 * of both Ant and Jenkins' xUnit plugin. With very many findings, one file may have several suites.
 */
export const junit = (now = new Date(), most = longest): Plain => {
  const timestamp = timestampOf(now);
  const suites = new Map<string, Suite>();
  /** Some viewers show only the first of several tests with the same name, and an object may be in two files. */
  const seen = new Set<string>();
  let length = 0;
  let id = 0;
  let head = begin;
  const put = (one: Checked) => {
    const name = suiteNameOf(one);
    const suite = suites.get(name) ?? { name, cases: [], said: [] };
    suites.set(name, suite);
    const cases = casesOf(one).map((single): Case => {
      if (one.file === undefined) return single;
      const key = JSON.stringify([single.object, single.rule]);
      if (!seen.has(key)) seen.add(key);
      else return { ...single, rule: `${single.rule} at ${one.file}:${one.line ?? 1}` };
      return single;
    });
    const said = one.warnings.map(({ rule, text }) => `${describeObject(one)}: ${rule} warns: ${text}`);
    for (const one of cases) suite.cases.push(one);
    for (const text of said) suite.said.push(text);
    for (const { object, rule, failure, error } of cases)
      length += object.length + rule.length + ((failure ?? error)?.text.length ?? 0) + overhead;
    for (const text of said) length += text.length;
  };
  const spill = (): string => {
    const written = [...suites.values()].map((suite) => suiteOf(suite, { id: id++, timestamp }));
    suites.clear();
    length = 0;
    const text = `${head}${written.join("")}`;
    head = "";
    return text;
  };
  return {
    add: ({ checked }) => {
      put(checked);
      return length > most ? spill() : "";
    },
    end: ({ unread }) => {
      for (const { checked } of unread) put(checked);
      return [spill(), end];
    },
  };
};

export const writeSuites = (suites: readonly Suite[], now = new Date()): string => {
  const timestamp = timestampOf(now);
  return [begin, ...suites.map((suite, id) => suiteOf(suite, { id, timestamp })), end].join("");
};

const [begin, end] = [`<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n`, "</testsuites>\n"];

const timestampOf = (time: Date) => time.toISOString().slice(0, 19);

/** The characters of a test's markup, estimated. */
const overhead = 100;

const suiteNameOf = (one: Checked): string => {
  const { apiVersion, kind } = getTarget(one);
  return one.file === "-" ? "standard input" : (one.file ?? `${apiVersion} ${kind}`);
};

const casesOf = (one: Checked): Case[] => {
  const object = describeObject(one);
  const failed = one.denials.map((denial): Case => {
    const place = [one.file, lineOf(one, denial)].filter((part) => part !== undefined).join(":");
    const text = `${place && `${place}: `}${formatDenial(denial)}`;
    return { object, rule: denial.rule, failure: { message: denial.message, type: denial.reason || "Denied", text } };
  });
  const [first, ...more] = one.undecided;
  const message = more.length > 0 ? `${first}, and ${more.length} more` : first;
  const text = one.undecided.join("\n");
  const open: Case[] =
    message === undefined ? [] : [{ object, rule: "postern check", error: { message, type: "Undecided", text } }];
  const fine = new Set([...one.passed, ...one.changes.map(({ rule }) => rule)]);
  for (const { rule } of one.denials) fine.delete(rule);
  const passed = [...fine].map((rule): Case => ({ object, rule }));
  const cases = [...failed, ...open, ...passed];
  // An object that no rule matches still counts as a test.
  return cases.length > 0 ? cases : [{ object, rule: "postern check" }];
};

const countsOf = (cases: Case[]): string => {
  const [failures, errors] = [cases.filter(({ failure }) => failure), cases.filter(({ error }) => error)];
  return attributes({ tests: cases.length, failures: failures.length, errors: errors.length, time: 0 });
};

const suiteOf = ({ name, cases, said }: Suite, { id, timestamp }: { id: number; timestamp: string }): string => {
  const about = attributes({ name, id, package: "postern", timestamp, hostname: "localhost" });
  const written = cases.map(({ object, rule, failure, error, isSkipped }) => {
    const inside = [
      ...(failure ? [wrong("failure", failure)] : []),
      ...(error ? [wrong("error", error)] : []),
      ...(isSkipped ? ["<skipped></skipped>"] : []),
    ].join("");
    return `    <testcase ${attributes({ classname: object, name: rule, time: 0 })}>${inside}</testcase>\n`;
  });
  const output = `    <system-out>${text(said.join("\n"))}</system-out>\n    <system-err></system-err>\n`;
  return `  <testsuite ${about} ${countsOf(cases)}>\n    <properties></properties>\n${written.join("")}${output}  </testsuite>\n`;
};

const wrong = (element: string, { message, type, text: full }: Wrong): string =>
  `<${element} ${attributes({ message, type })}>${text(full)}</${element}>`;

const attributes = (values: Record<string, string | number>): string =>
  Object.entries(values)
    .map(([name, value]) => `${name}="${attribute(String(value))}"`)
    .join(" ");

/** Characters that XML doesn't allow even when escaped become U+FFFD. */
const text = (value: string): string =>
  value
    .toWellFormed()
    // biome-ignore lint/suspicious/noControlCharactersInRegex: it is these that XML doesn't allow
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd")
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll("\r", "&#13;");

const attribute = (value: string): string =>
  text(value).replaceAll('"', "&quot;").replaceAll("\n", "&#10;").replaceAll("\t", "&#9;");
