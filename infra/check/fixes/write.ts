import { realpath, writeFile } from "node:fs/promises";
import { isAbsolute, relative, resolve, sep } from "node:path";
import { Complaint, toSentence } from "../../cli/complaint.ts";
import { formatCount } from "../../cli/progress.ts";
import { toOneLine } from "../../cli/terminal.ts";
import { applyFixes, type Fix } from "./fix.ts";

/** Writes the fixes into the text that was checked: a change made to a file since then is overwritten. */
export const writeFixes = async (fixes: readonly Fix[]): Promise<void> => {
  const byFile = Map.groupBy(fixes, ({ manifest }) => manifest.source);
  for (const [{ name, folder = ".", mark = "", text }, own] of byFile) {
    const fixed = applyFixes(text, own);
    const target = await realpath(name).catch(() => name);
    const kept = (reason: string) => process.stderr.write(`${toOneLine(`${name} is left as it is: ${reason}`)}\n`);
    if ("kept" in fixed) kept(fixed.kept);
    else if (!(await isWithin(folder, target))) kept(`it is a symbolic link to ${target}, outside of ${folder}`);
    else if (fixed.text !== text) {
      await save(target, mark + fixed.text);
      process.stderr.write(`${toOneLine(name)}: ${formatCount(own.length, "object")} mended\n`);
    }
  }
};

const isWithin = async (folder: string, target: string): Promise<boolean> => {
  const path = relative(await realpath(folder), resolve(target));
  return path !== ".." && !path.startsWith(`..${sep}`) && !isAbsolute(path);
};

const save = (file: string, text: string) =>
  writeFile(file, text).catch((error) => {
    throw new Complaint(`${file} can't be written: ${toSentence(error)}`);
  });
