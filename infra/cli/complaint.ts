import { messageOf } from "#lib/failure.ts";
/** Something the user can put right: printed as one sentence, without a stack. */
export class Complaint extends Error {
  readonly exitCode: number;
  constructor(sentence: string, exitCode = 2) {
    super(sentence);
    this.exitCode = exitCode;
  }
}

/** Whatever was thrown, as a sentence of one line. */
export const sentenceOf = (thrown: unknown): string =>
  messageOf(thrown)
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean)
    .join(" ");
