import type { Evaluation } from "../evaluation/environment.ts";
import { formatEvaluation, listAuditNotes, type Paint, summaryLine } from "./format.ts";
import type { Report } from "./report.ts";

/** Prints all objects if `isWhole`, otherwise only those with something to report. */
export const text = (paint: Paint, isWhole: boolean): Report => ({
  add: (evaluation) => (isWhole || isTelling(evaluation) ? formatEvaluation(evaluation, paint) : ""),
  end: ({ summary }) => [summaryLine(summary, paint)],
});

const isTelling = ({ checked: { verdict, warnings }, audit, steps }: Evaluation): boolean =>
  verdict !== "allowed" ||
  warnings.length > 0 ||
  listAuditNotes(audit).length > 0 ||
  steps.some(({ outcome }) => outcome === "would be called");
