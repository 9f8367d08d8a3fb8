import type { Evaluation } from "../evaluation/environment.ts";
import { formatEvaluation, listAuditNotes, type Paint, summaryLine } from "./format.ts";
import type { Report } from "./report.ts";

/** The findings as somebody reads them; those of objects of which there is nothing to say, only where `isWhole`. */
export const text = (paint: Paint, isWhole: boolean): Report => ({
  add: (evaluation) => (isWhole || isTelling(evaluation) ? formatEvaluation(evaluation, paint) : ""),
  end: ({ summary }) => [summaryLine(summary, paint)],
});

const isTelling = ({ checked: { verdict, warnings }, audit, steps }: Evaluation): boolean =>
  verdict !== "allowed" ||
  warnings.length > 0 ||
  listAuditNotes(audit).length > 0 ||
  steps.some(({ outcome }) => outcome === "would be called");
