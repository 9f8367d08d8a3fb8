import type { Evaluation } from "../evaluation/environment.ts";
import type { Checked } from "../evaluation/result.ts";
import type { Summary } from "./format.ts";

/** Something that could not be read, and so was not evaluated. */
export interface Unread {
  /** For programs. */
  fault: object;
  /** In a sentence. */
  text: string;
  /** In the place of a verdict. */
  checked: Checked;
}

/** What is known when all is over. */
export interface Closing {
  summary: Summary;
  unread: readonly Unread[];
  notes: readonly string[];
  /** Whether somebody ended it before its end. */
  isCut: boolean;
}

/** A form in which findings are told as they come: each is written and let go, whatever their number. */
export interface Report<Finding = Evaluation> {
  /** What is to be written now; empty where it waits for others. */
  add(finding: Finding): string;
  /** All that is left to be written. */
  end(closing: Closing): Iterable<string>;
}

/** Of those that look at no more than what became of an object. */
export type Plain = Report<Pick<Evaluation, "checked">>;
