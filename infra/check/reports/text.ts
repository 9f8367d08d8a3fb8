import type { Judged } from "../evaluation/evaluate.ts";
import { auditOf, type Paint, summaryLine, told } from "./details.ts";
import type { Report } from "./report.ts";

/** The findings as somebody reads them; those of objects of which there is nothing to say, only where `isWhole`. */
export const text = (paint: Paint, isWhole: boolean): Report => ({
  add: (judged) => (isWhole || isTelling(judged) ? told(judged, paint) : ""),
  end: ({ summary }) => [summaryLine(summary, paint)],
});

const isTelling = ({ checked: { verdict, warnings }, audit, steps }: Judged): boolean =>
  verdict !== "allowed" ||
  warnings.length > 0 ||
  auditOf(audit).length > 0 ||
  steps.some(({ outcome }) => outcome === "would be called");
