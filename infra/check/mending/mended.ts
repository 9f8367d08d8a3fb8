import { writeFile } from "node:fs/promises";
import { Complaint, sentenceOf } from "../../complaint.ts";
import { counted } from "../../progress.ts";
import { oneLine } from "../../shown.ts";
import { type Edit, edited } from "./fix.ts";

/** Writes changes back, file by file; what others wrote meanwhile isn't lost, for a file is written at once. */
export const mend = async (edits: readonly Edit[]): Promise<void> => {
  const byFile = Map.groupBy(edits, ({ manifest }) => manifest.source);
  for (const [{ name, mark = "", text }, own] of byFile) {
    const fixed = edited(text, own);
    if ("kept" in fixed) process.stderr.write(`${oneLine(`${name} is left as it is: ${fixed.kept}`)}\n`);
    else if (fixed.text !== text) {
      await save(name, mark + fixed.text);
      process.stderr.write(`${oneLine(name)}: ${counted(own.length, "object")} mended\n`);
    }
  }
};

const save = (file: string, text: string) =>
  writeFile(file, text).catch((error) => {
    throw new Complaint(`${file} can't be written: ${sentenceOf(error)}`);
  });
