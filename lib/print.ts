import { writeSync } from "node:fs";

/** At once, for Lambda may freeze us after the answer; and without the stream that process.stdout would set up. */
export const print = (text: string): void => {
  try {
    writeSync(1, text);
  } catch {
    // A pipe that is full takes no more at once.
    process.stdout.write(text);
  }
};
