import { pathToFileURL } from "node:url";
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

/**
 * Returns a sentence about a rejected promise that no code handles, with the first place in its stack that is in the
 * project's own files, such as `functions/my-rule/rule.ts:12`.
 */
export const describeUnhandledRejection = (reason: unknown, root: string): string => {
  const stack = reason instanceof Error ? (reason.stack ?? "") : "";
  const ownFile = new RegExp(
    `${RegExp.escape(pathToFileURL(root).href)}((?!node_modules/)[^\\s:?]+)(?:\\?\\d+)?(:\\d+)`,
  );
  const [, file, line] = ownFile.exec(stack) ?? [];
  const place = file === undefined ? "" : `${file}${line}: `;
  return `${place}a promise that is not awaited was rejected: ${toSentence(reason)}`;
};
