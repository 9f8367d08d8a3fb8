import { createReadStream } from "node:fs";
import { readdir, stat } from "node:fs/promises";
import { basename, join, normalize } from "node:path";
import { isSeq, LineCounter, parseDocument } from "yaml";
import type { Case } from "../catalogue/cases.ts";
import { Complaint, sentenceOf } from "../cli/complaint.ts";
import { caseIn } from "./form.ts";
import { type Line, linesOf, longestLine } from "./lines.ts";

/** A recorded review, and where it stands. */
export interface Recorded {
  file: string;
  line: number;
  entry: Case;
  /** Whose case it is, and where it was recorded; one that somebody wrote says neither. */
  rule?: string;
  cluster?: string;
}

/** What stands where a recording should. */
export interface Unreadable {
  file: string;
  line: number;
  sentence: string;
}

/** A cases.yaml that somebody wrote is read whole; nobody writes more. */
const longestFile = 4 * longestLine;

/** All that files, folders and, for `-`, standard input hold, one after the other and in bounded memory. */
export async function* recordingsAt(
  paths: readonly string[],
  stdin: AsyncIterable<Uint8Array> = process.stdin,
): AsyncGenerator<Recorded | Unreadable> {
  const files = new Set((await Promise.all(paths.map(filesAt))).flat());
  // What is of one rule comes together, whichever clusters it was recorded in.
  const sorted = [...files].sort((one, other) => compare(basename(one), basename(other)) || compare(one, other));
  for (const file of sorted) {
    const source: AsyncIterable<Uint8Array> = file === "-" ? stdin : createReadStream(file);
    try {
      for await (const found of recordingsIn(source)) yield { file, ...found };
    } catch (error) {
      throw new Complaint(`${file} can't be read: ${sentenceOf(error)}`);
    }
  }
}

const compare = (one: string, other: string) => (one < other ? -1 : one > other ? 1 : 0);

const filesAt = async (path: string): Promise<string[]> => {
  if (path === "-") return [path];
  const found = await stat(path).catch(() => undefined);
  if (found === undefined) throw new Complaint(`${path} is no file or folder`);
  if (!found.isDirectory()) return [normalize(path)];
  const entries = await readdir(path, { recursive: true, withFileTypes: true }).catch((error) => {
    throw new Complaint(`${path} can't be read: ${sentenceOf(error)}`);
  });
  return entries
    .filter((entry) => entry.isFile() && /\.ya?ml$/i.test(entry.name))
    .map(({ parentPath, name }) => join(parentPath, name));
};

type Found = Omit<Recorded, "file"> | Omit<Unreadable, "file">;

/** A case a line, as it is recorded, or a list as people write it: the first line tells. */
async function* recordingsIn(source: AsyncIterable<Uint8Array>): AsyncGenerator<Found> {
  let written: Line[] | undefined;
  let isRecorded = false;
  let length = 0;
  for await (const line of linesOf(source)) {
    const text = line.text?.trim();
    if (!isRecorded && written === undefined && (text === "" || text?.startsWith("#") || text === "---")) continue;
    if (written === undefined && (isRecorded || text === undefined || /^-\s*\{\s*"/.test(text))) {
      isRecorded = true;
      if (text !== "") yield recordingIn(line);
      continue;
    }
    written ??= [];
    written.push(line);
    length += line.text?.length ?? 0;
    const wrong = length > longestFile ? `makes this longer than ${longestFile} characters` : line.wrong;
    if (wrong !== undefined) {
      yield { line: line.number, sentence: wrong };
      return;
    }
  }
  if (written !== undefined) yield* casesIn(written);
}

const recordingIn = ({ number: line, text = "", wrong }: Line): Found => {
  if (wrong !== undefined) return { line, sentence: wrong };
  const [, json] = /^-\s+(.*)$/.exec(text.trimEnd()) ?? [];
  if (json === undefined) return { line, sentence: "is no recording: each begins with a dash" };
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    return { line, sentence: "is no recording: after the dash, it is not JSON" };
  }
  return { line, ...caseIn(value) };
};

/** Cases as people write them, over several lines and with aliases, of which there may be many but not without end. */
const casesIn = (lines: readonly Line[]): Found[] => {
  const counter = new LineCounter();
  const first = lines[0]?.number ?? 1;
  const text = lines.map(({ text }) => text).join("\n");
  const document = parseDocument(text, { prettyErrors: false, lineCounter: counter, logLevel: "silent" });
  const lineAt = (offset: number) => counter.linePos(offset).line + first - 1;
  const [broken] = document.errors;
  if (broken) return [{ line: lineAt(broken.pos[0]), sentence: `is no YAML: ${broken.message}` }];
  const { contents } = document;
  if (!isSeq(contents)) return [{ line: first, sentence: "is no list of cases" }];
  let values: unknown[];
  try {
    values = document.toJS({ maxAliasCount: 10_000 });
  } catch (error) {
    return [{ line: first, sentence: `is no YAML: ${sentenceOf(error)}` }];
  }
  return contents.items.map((item, index) => {
    const offset = Object(item).range?.[0] ?? 0;
    return { line: lineAt(offset), ...caseIn(values[index]) };
  });
};
