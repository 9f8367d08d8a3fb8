import { writeSync } from "node:fs";

/** Prints synchronously and without a stream, because Lambda may freeze the process after the answer. */
export const printSync = (text: string): void => {
  try {
    writeSync(1, text);
  } catch {
    // A full pipe accepts no more text synchronously, so the text is queued.
    process.stdout.write(text);
  }
};
