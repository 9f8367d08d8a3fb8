import project from "../../../package.json" with { type: "json" };
import {
  type Denial,
  formatObjectName,
  getReportedObject,
  type ObjectCheckResult,
} from "../evaluation/object-evaluation.ts";
import {
  type CheckResultReportWriter,
  createJsonListFormatter,
  formatDenial,
  getDenialLine,
  stringifyAt,
  toReportUri,
  toRepositoryPath,
} from "./check-report.ts";
import { computeFingerprint, fingerprintName } from "./known-findings.ts";

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
export const createSarifReport = (
  catalogue: readonly { name: string; summary: string }[] = [],
): CheckResultReportWriter => {
  const summaries = new Map(catalogue.map(({ name, summary }) => [name, summary]));
  const rules = new Map<string, number>();
  const [results, notifications] = [createJsonListFormatter(4), createJsonListFormatter(6)];
  /** The notifications so far, as text: the report has their list after the list of results. */
  let notificationText = "";
  let head = begin;
  const put = (result: ObjectCheckResult): string => {
    let text = head;
    head = "";
    const add = (rule: string, level: "error" | "warning", message: string, denial?: Denial) => {
      const ruleIndex = rules.get(rule) ?? rules.size;
      rules.set(rule, ruleIndex);
      const locations = [
        { ...toPhysicalLocation(result, getDenialLine(result, denial), denial?.column), ...toLogicalLocation(result) },
      ];
      text += results.add({
        ruleId: rule,
        ruleIndex,
        level,
        message: { text: escapeLinks(message || "denied without explanation") },
        locations,
        partialFingerprints: { [fingerprintName]: computeFingerprint(result, rule, message) },
      });
    };
    for (const denial of result.denials) add(denial.rule, "error", formatDenial(denial), denial);
    for (const { rule, text } of result.warnings) add(rule, "warning", text);
    for (const sentence of result.undecided) {
      const text = escapeLinks(`${formatObjectName(result)}: ${sentence}`);
      const place = toRepositoryPath(result.file) === undefined ? {} : toPhysicalLocation(result, result.line);
      const locations = [{ ...place, ...toLogicalLocation(result) }];
      notificationText += notifications.add({ level: "warning", message: { text }, locations });
    }
    return text;
  };
  return {
    add: ({ checked }) => put(checked),
    end: function* ({ unreadableInputs, wasInterrupted }) {
      // An input that could not be read is reported like an undecided object.
      for (const { checked } of unreadableInputs) yield put(checked);
      const described = [...rules.keys()].map((id) => {
        const summary = summaries.get(id);
        return { id, ...(summary !== undefined && { shortDescription: { text: escapeLinks(summary) } }) };
      });
      const driver = { name: "Postern", semanticVersion: project.version, rules: described };
      yield `${head}${results.end()},\n      "tool": ${stringifyAt({ driver }, 3)},\n      "invocations": [\n        {\n`;
      yield `          "executionSuccessful": ${!wasInterrupted},\n          "toolExecutionNotifications": `;
      yield `${notificationText}${notifications.end()}\n        }\n      ]\n    }\n  ]\n}\n`;
    },
  };
};

const toLogicalLocation = (result: ObjectCheckResult) => {
  return { logicalLocations: [{ fullyQualifiedName: formatObjectName(result).toWellFormed(), kind: "object" }] };
};

const toPhysicalLocation = (result: ObjectCheckResult, line?: number, column?: number) => {
  const { uri, isRelative } = toReportUri(toRepositoryPath(result.file) ?? buildStandInPath(result));
  const region = line === undefined ? {} : { region: { startLine: line, ...(column && { startColumn: column }) } };
  const artifactLocation = { uri, ...(isRelative && { uriBaseId: "%SRCROOT%" }) };
  return { physicalLocation: { artifactLocation, ...region } };
};

/**
 * Returns a path for an object of a cluster (`file` is undefined) or of standard input (`file` is `-`). GitHub code
 * scanning rejects a whole log if one result has no file.
 */
const buildStandInPath = (result: ObjectCheckResult): string => {
  const { apiVersion, kind, name } = getReportedObject(result);
  return result.file === undefined
    ? ["cluster", apiVersion, kind, result.namespace, name].filter(Boolean).join("/")
    : "stdin";
};

/** Escapes links: messages may have text of any user, and viewers make links of `[…](…)`. */
const escapeLinks = (text: string): string => {
  const wellFormed = text.toWellFormed();
  // The text of a link stands before a parenthesis, so brackets after the last `(` can stay.
  const end = wellFormed.lastIndexOf("(") + 1;
  return `${wellFormed.slice(0, end).replace(/[\\[\]]/g, "\\$&")}${wellFormed.slice(end)}`;
};
