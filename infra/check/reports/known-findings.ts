import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { getOwn } from "#lib/json.ts";
import { Complaint, toSentence } from "../../cli/complaint.ts";
import type { ObjectCheckResult } from "../evaluation/object-evaluation.ts";
import { type CheckReportWriter, formatDenial } from "./check-report.ts";

/** The name of the fingerprints in SARIF reports. */
export const fingerprintName = "posternFinding/v1";

/**
 * Returns the fingerprint of a denial or a warning. It has neither the line nor a name that a controller made: a
 * finding keeps its identity when lines move, and when a Pod is replaced.
 */
export const computeFingerprint = (
  { apiVersion, kind, namespace = "", name, owner = name }: ObjectCheckResult,
  rule: string,
  message: string,
): string => createHash("sha256").update([rule, apiVersion, kind, namespace, owner, message].join("\n")).digest("hex");

/** Reads the fingerprints in a SARIF report of an earlier check; a note says why there are none. Throws for a folder. */
export const readKnownFindings = async (
  file: string,
  note: (sentence: string) => void,
): Promise<ReadonlySet<string>> => {
  try {
    const text = await readFile(file, "utf8");
    const known = parseFingerprints(text);
    if (known !== undefined) return known;
    note(`${file} is ${text === "" ? "empty" : "not a SARIF report of postern check"}, so every finding is new`);
  } catch (error) {
    if (getOwn(error, "code") === "EISDIR")
      throw new Complaint(`--known takes the SARIF report of an earlier check, and ${file} is a folder`);
    const why = getOwn(error, "code") === "ENOENT" ? "doesn't exist" : `can't be read (${toSentence(error)})`;
    note(`${file} ${why}, so every finding is new`);
  }
  return new Set();
};

/** Returns undefined for a text that is no SARIF report of `check`. */
const parseFingerprints = (text: string): Set<string> | undefined => {
  const run = getOwn(getOwn(parseJson(text), "runs"), "0");
  const results = getOwn(run, "results");
  if (getOwn(getOwn(getOwn(run, "tool"), "driver"), "name") !== "Postern" || !Array.isArray(results)) return undefined;
  const all = results.map((result) => getOwn(getOwn(result, "partialFingerprints"), fingerprintName));
  return new Set(all.filter((fingerprint) => typeof fingerprint === "string"));
};

const parseJson = (text: string): unknown => {
  try {
    return JSON.parse(text);
  } catch {
    // The parser's message would quote the text, which may have secrets. The caller notes that it is no SARIF report.
    return undefined;
  }
};

const listNewDenials = (result: ObjectCheckResult, known: ReadonlySet<string>) =>
  result.denials.filter((denial) => !known.has(computeFingerprint(result, denial.rule, formatDenial(denial))));

export const hasNewDenial = (result: ObjectCheckResult, known: ReadonlySet<string>): boolean =>
  listNewDenials(result, known).length > 0;

/**
 * Returns a report that leaves out the denials and warnings that an earlier check found. Undecided objects are always
 * reported: a SARIF report has no fingerprints of them.
 */
export const leaveOutKnownFindings = (
  report: CheckReportWriter,
  knownFingerprints: ReadonlySet<string>,
): CheckReportWriter => ({
  ...report,
  add: (evaluation) => {
    const { checked } = evaluation;
    const denials = listNewDenials(checked, knownFingerprints);
    const warnings = checked.warnings.filter(
      ({ rule, text }) => !knownFingerprints.has(computeFingerprint(checked, rule, text)),
    );
    if (denials.length + warnings.length === 0 && checked.verdict !== "undecided") return "";
    return report.add({ ...evaluation, checked: { ...checked, denials, warnings } });
  },
});
