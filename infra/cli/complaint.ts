import { getErrorMessage } from "#lib/failure.ts";

/** An error that the user can correct: printed as one sentence, without a stack. */
export class Complaint extends Error {
  readonly exitCode: number;
  constructor(sentence: string, exitCode = 2) {
    super(sentence);
    this.exitCode = exitCode;
  }
}

/** Returns a Complaint. Throws every other error. */
export const requireComplaint = (error: unknown): Complaint => {
  if (error instanceof Complaint) return error;
  throw error;
};

/** Returns the message of an error in one line. */
export const toSentence = (thrown: unknown): string =>
  getErrorMessage(thrown)
    .replace(/^EISDIR: .*/s, "it is a folder, not a file")
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean)
    .join(" ");
