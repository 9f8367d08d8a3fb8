import { isUtf8 } from "node:buffer";
import { createReadStream } from "node:fs";
import { readdir, stat } from "node:fs/promises";
import { basename, join, normalize } from "node:path";
import { isNode, isSeq, LineCounter, parseDocument } from "yaml";
import { isDeeper, isMap, parseJson } from "#lib/json.ts";
import type { Case } from "#lib/recording/recording.ts";
import { caseMembers } from "../catalogue/case-shape.ts";
import { ruleNamePattern } from "../catalogue/rule-names.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import {
  anyShape,
  createMapListShape,
  createMapShape,
  findMisfits,
  flagShape,
  type InputShape,
  mapShape,
  textMapShape,
  textShape,
} from "../cli/shape.ts";

/** A recorded review, or a case written by hand, that replay sends to versions of the rules. */
export interface ReplayRecording {
  file: string;
  line: number;
  entry: Case;
  /** The rule that was recorded; absent in a case written by hand. */
  rule?: string;
  cluster?: string;
}

export interface UnreadableRecording {
  file: string;
  line: number;
  sentence: string;
}

/** The maximum length of one line in a file of recordings, in bytes. Every recording is shorter. */
const longestLine = 4 * 1024 * 1024;

/** The limit of a cases.yaml written by hand, in characters; it is read into memory as a whole. */
const longestFile = 4 * longestLine;

/** Reads recordings from files, folders and, for `-`, standard input, one after the other in bounded memory. */
export async function* readRecordings(
  paths: readonly string[],
  stdin: AsyncIterable<Uint8Array> = process.stdin,
): AsyncGenerator<ReplayRecording | UnreadableRecording> {
  const files = new Set((await Promise.all(paths.map(listRecordingFiles))).flat());
  // Sorts by file name first: the files of one rule are read one after another, whatever their cluster's folder.
  const sorted = [...files].sort((left, right) => compare(basename(left), basename(right)) || compare(left, right));
  for (const file of sorted) {
    const source: AsyncIterable<Uint8Array> = file === "-" ? stdin : createReadStream(file);
    try {
      for await (const found of parseRecordings(source)) yield { file, ...found };
    } catch (error) {
      throw new Complaint(`${file} can't be read: ${toSentence(error)}`);
    }
  }
}

const compare = (left: string, right: string) => (left < right ? -1 : left > right ? 1 : 0);

const listRecordingFiles = async (path: string): Promise<string[]> => {
  if (path === "-") return [path];
  const found = await stat(path).catch(() => undefined);
  if (found === undefined) throw new Complaint(`${path} is no file or folder`);
  if (!found.isDirectory()) return [normalize(path)];
  const entries = await readdir(path, { recursive: true, withFileTypes: true }).catch((error) => {
    throw new Complaint(`${path} can't be read: ${toSentence(error)}`);
  });
  return entries
    .filter((entry) => entry.isFile() && /\.ya?ml$/i.test(entry.name))
    .map(({ parentPath, name }) => join(parentPath, name));
};

type Found = Omit<ReplayRecording, "file"> | Omit<UnreadableRecording, "file">;

/** Reads recordings, one per line, or a list of cases written by hand; the first line decides. */
async function* parseRecordings(source: AsyncIterable<Uint8Array>): AsyncGenerator<Found> {
  let written: NumberedLine[] | undefined;
  let isRecorded = false;
  let length = 0;
  for await (const line of readLines(source)) {
    const text = line.text?.trim();
    if (!isRecorded && written === undefined && (text === "" || text?.startsWith("#") || text === "---")) continue;
    if (written === undefined && (isRecorded || text === undefined || /^-\s*\{\s*"/.test(text))) {
      isRecorded = true;
      if (text !== "") yield parseRecording(line);
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
  if (written !== undefined) yield* parseWrittenCases(written);
}

const parseRecording = ({ number: line, text = "", wrong }: NumberedLine): Found => {
  if (wrong !== undefined) return { line, sentence: wrong };
  const [, json] = /^-\s+(.*)$/.exec(text.trimEnd()) ?? [];
  if (json === undefined) return { line, sentence: "is no recording: each begins with a dash" };
  const value = parseJson(json);
  if (value === undefined) return { line, sentence: "is no recording: after the dash, it is not JSON" };
  return { line, ...readCase(value) };
};

/** Parses cases written by hand, with several lines each. Aliases are limited, because they can expand without end. */
const parseWrittenCases = (lines: readonly NumberedLine[]): Found[] => {
  const counter = new LineCounter();
  const first = lines[0]?.number ?? 1;
  const text = lines.map(({ text }) => text).join("\n");
  const document = parseDocument(text, { prettyErrors: false, lineCounter: counter, logLevel: "silent" });
  const getLine = (offset: number) => counter.linePos(offset).line + first - 1;
  const [broken] = document.errors;
  if (broken) return [{ line: getLine(broken.pos[0]), sentence: `is no YAML: ${broken.message}` }];
  const { contents } = document;
  if (!isSeq(contents)) return [{ line: first, sentence: "is no list of cases" }];
  let values: unknown[];
  try {
    values = document.toJS({ maxAliasCount: 10_000 });
  } catch (error) {
    return [{ line: first, sentence: `is no YAML: ${toSentence(error)}` }];
  }
  return contents.items.map((item, index) => {
    const offset = isNode(item) ? (item.range?.[0] ?? 0) : 0;
    return { line: getLine(offset), ...readCase(values[index]) };
  });
};

const objects: InputShape = {
  expected: "a list of objects with names",
  type: "array",
  items: {
    type: "object",
    properties: {
      apiVersion: textShape,
      kind: textShape,
      metadata: {
        type: "object",
        properties: { name: textShape, namespace: textShape, labels: textMapShape },
        required: ["name"],
      },
    },
    required: ["metadata"],
  },
};
const answers = createMapListShape("a list of questions with answers", { answer: mapShape });
const needs = {
  objects,
  https: answers,
  http: answers,
  aws: answers,
  may: createMapListShape("a list of questions that say whether it is allowed", { allowed: flagShape }),
  refused: createMapListShape("a list of names with a status", { status: mapShape }),
  reads: createMapListShape("a list of maps"),
  discovery: mapShape,
  ledger: mapShape,
  cluster: textShape,
  plurals: textMapShape,
};
const origin = {
  rule: { expected: "the name of a rule", type: "string" as const, pattern: ruleNamePattern.source },
  cluster: textShape,
};
/** The shape of a recorded case. Unknown members are allowed: another version of Postern may have written these. */
const caseShape = createMapShape(
  { ...caseMembers, needs: createMapShape(needs, anyShape), recorded: createMapShape(origin, anyShape) },
  anyShape,
);

/**
 * The most levels of nesting that a recorded case may have, more than any real object has. Deeper recursion could
 * overflow the stack and end the process.
 */
const deepest = 1000;

const readCase = (value: unknown): { entry: Case; rule?: string; cluster?: string } | { sentence: string } => {
  if (!isMap(value)) return { sentence: "is no case: a map is expected" };
  if (isDeeper(value, deepest)) return { sentence: `is no case: it is nested more than ${deepest} deep` };
  const [misfit] = findMisfits(value, caseShape);
  if (misfit) return { sentence: `is no case: ${misfit.path.join(".")} must be ${misfit.expected}` };
  if (!Object.hasOwn(value, "name")) return { sentence: "is no case: it has no name" };
  if (Object.hasOwn(value, "mutate") === Object.hasOwn(value, "validate"))
    return { sentence: "is no case: it must say either mutate or validate" };
  // The shape was checked above; other members are not read here.
  const entry = value as unknown as Case;
  const { rule, cluster } = (value.recorded ?? {}) as { rule?: string; cluster?: string };
  return { entry, ...(rule !== undefined && { rule }), ...(cluster !== undefined && { cluster }) };
};

/** A line of a file, counted from 1. A line that is too long or not UTF-8 has `wrong` instead of `text`. */
interface NumberedLine {
  number: number;
  text?: string;
  wrong?: string;
}

const newline = 10;

export async function* readLines(
  source: AsyncIterable<Uint8Array>,
  longest = longestLine,
): AsyncGenerator<NumberedLine> {
  let number = 1;
  let parts: Uint8Array[] = [];
  let length = 0;
  const take = (part: Uint8Array) => {
    length += part.length;
    // The bytes of a line that is too long are counted, but not kept.
    if (length > longest) parts = [];
    else if (part.length > 0) parts.push(part);
  };
  const finishLine = (): NumberedLine => {
    const line = decodeLine(number, parts, length, longest);
    [number, parts, length] = [number + 1, [], 0];
    return line;
  };
  for await (const chunk of source) {
    let from = 0;
    for (let at = chunk.indexOf(newline); at >= 0; at = chunk.indexOf(newline, from)) {
      take(chunk.subarray(from, at));
      yield finishLine();
      from = at + 1;
    }
    take(chunk.subarray(from));
  }
  if (length > 0) yield finishLine();
}

const decodeLine = (number: number, parts: readonly Uint8Array[], length: number, longest: number): NumberedLine => {
  if (length > longest) return { number, wrong: `is longer than ${longest} bytes` };
  const bytes = Buffer.concat(parts);
  if (!isUtf8(bytes)) return { number, wrong: "is not UTF-8" };
  return { number, text: bytes.toString().replace(/\r$/, "") };
};
