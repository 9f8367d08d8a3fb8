import { writeSync } from "node:fs";

/** Prints synchronously, because Lambda may freeze the process after the answer. process.stdout creates a stream. */
export const printSync = (text: string): void => {
  try {
    writeSync(1, text);
  } catch {
    // A full pipe accepts no more text synchronously, so the text is queued.
    process.stdout.write(text);
  }
};
