import { createHash } from "node:crypto";
import project from "../../../package.json" with { type: "json" };
import { type CheckResult, type Denial, formatObjectName, getReportedObject } from "../evaluation/evaluation.ts";
import {
  formatDenial,
  getDenialLine,
  openJsonList,
  type ResultReport,
  stringifyAt,
  toRepositoryPath,
  toUri,
} from "./report.ts";

const $schema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";
const begin = `{
  "$schema": ${JSON.stringify($schema)},
  "version": "2.1.0",
  "runs": [
    {
      "columnKind": "utf16CodeUnits",
      "results": `;

/**
 * Writes the findings as a SARIF 2.1.0 log. Denials are errors, warnings are warnings; an undecided object is a
 * notification of the run, as no rule reported it.
 */
export const createSarifReport = (catalogue: readonly { name: string; summary: string }[] = []): ResultReport => {
  const summaries = new Map(catalogue.map(({ name, summary }) => [name, summary]));
  const rules = new Map<string, number>();
  const [results, notifications] = [openJsonList(4), openJsonList(6)];
  /** The notifications so far, as text: the report has their list after the list of results. */
  let waiting = "";
  let head = begin;
  const put = (one: CheckResult): string => {
    let text = head;
    head = "";
    const add = (rule: string, level: "error" | "warning", message: string, denial?: Denial) => {
      const ruleIndex = rules.get(rule) ?? rules.size;
      rules.set(rule, ruleIndex);
      const locations = [
        { ...toPhysicalLocation(one, getDenialLine(one, denial), denial?.column), ...toLogicalLocation(one) },
      ];
      // The fingerprint leaves out the line: a finding keeps its identity when lines move.
      const identity = [rule, one.apiVersion, one.kind, one.namespace ?? "", one.name, message].join("\n");
      const partialFingerprints = { "posternFinding/v1": createHash("sha256").update(identity).digest("hex") };
      text += results.add({
        ...{ ruleId: rule, ruleIndex, level, message: { text: escapeLinks(message || "denied without explanation") } },
        ...{ locations, partialFingerprints },
      });
    };
    for (const denial of one.denials) add(denial.rule, "error", formatDenial(denial), denial);
    for (const { rule, text } of one.warnings) add(rule, "warning", text);
    for (const sentence of one.undecided) {
      const text = escapeLinks(`${formatObjectName(one)}: ${sentence}`);
      const place = toRepositoryPath(one.file) === undefined ? {} : toPhysicalLocation(one, one.line);
      const locations = [{ ...place, ...toLogicalLocation(one) }];
      waiting += notifications.add({ level: "warning", message: { text }, locations });
    }
    return text;
  };
  return {
    add: ({ checked }) => put(checked),
    end: function* ({ unread, isCut }) {
      for (const { checked } of unread) yield put(checked);
      const described = [...rules.keys()].map((id) => {
        const summary = summaries.get(id);
        return { id, ...(summary !== undefined && { shortDescription: { text: escapeLinks(summary) } }) };
      });
      const driver = { name: "Postern", semanticVersion: project.version, rules: described };
      yield `${head}${results.end()},\n      "tool": ${stringifyAt({ driver }, 3)},\n      "invocations": [\n        {\n`;
      yield `          "executionSuccessful": ${!isCut},\n          "toolExecutionNotifications": `;
      yield `${waiting}${notifications.end()}\n        }\n      ]\n    }\n  ]\n}\n`;
    },
  };
};

const toLogicalLocation = (one: CheckResult) => {
  return { logicalLocations: [{ fullyQualifiedName: formatObjectName(one).toWellFormed(), kind: "object" }] };
};

const toPhysicalLocation = (one: CheckResult, line?: number, column?: number) => {
  const { uri, isRelative } = toUri(toRepositoryPath(one.file) ?? buildStandInPath(one));
  const region = line === undefined ? {} : { region: { startLine: line, ...(column && { startColumn: column }) } };
  const artifactLocation = { uri, ...(isRelative && { uriBaseId: "%SRCROOT%" }) };
  return { physicalLocation: { artifactLocation, ...region } };
};

/** Returns a path for an object without a file: GitHub code scanning rejects a whole log if one result has no file. */
const buildStandInPath = (one: CheckResult): string => {
  const { apiVersion, kind, name } = getReportedObject(one);
  return one.file === undefined
    ? ["cluster", apiVersion, kind, one.namespace, name].filter(Boolean).join("/")
    : "stdin";
};

/** Escapes links: messages may have text of any user, and viewers make links of `[…](…)`. */
const escapeLinks = (text: string): string => {
  const whole = text.toWellFormed();
  const end = whole.lastIndexOf("(") + 1;
  return `${whole.slice(0, end).replace(/[\\[\]]/g, "\\$&")}${whole.slice(end)}`;
};
