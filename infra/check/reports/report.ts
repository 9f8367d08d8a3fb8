import type { Evaluation } from "../evaluation/environment.ts";
import type { Checked } from "../evaluation/result.ts";
import type { Summary } from "./format.ts";

export interface Unread {
  fault: object;
  text: string;
  /** The same as an undecided object. */
  checked: Checked;
}

export interface Closing {
  summary: Summary;
  unread: readonly Unread[];
  notes: readonly string[];
  /** Whether a signal ended the check early. */
  isCut: boolean;
}

/** Writes findings as they come and keeps none, so that their number doesn't matter. */
export interface Report<Finding = Evaluation> {
  /** Returns the text to write now; empty if it has to wait. */
  add(finding: Finding): string;
  end(closing: Closing): Iterable<string>;
}

/** A report that reads only `checked`. */
export type Plain = Report<Pick<Evaluation, "checked">>;
