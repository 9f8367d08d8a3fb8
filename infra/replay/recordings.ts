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
  minorShape,
  textMapShape,
  textShape,
} from "../cli/shape.ts";
import { explainYamlError } from "../cli/yaml-document.ts";

/** A recorded review, or a case written by hand, that replay sends to versions of the rules. */
export interface ReplayRecording {
  file: string;
  line: number;
  entry: Case;
  /** The rule that was recorded; absent in a case written by hand. */
  rule?: string;
  cluster?: string;
}

/** A line that is no recording, or no case; `sentence` says why. */
export interface UnreadableRecording {
  file: string;
  line: number;
  sentence: string;
}

/** The maximum length of one line in a file of recordings. Every line that Postern records is shorter. */
const maxLineBytes = 4 * 1024 * 1024;

/** The maximum length of a cases.yaml written by hand. Such a file is read into memory as a whole. */
const maxWrittenCharacters = 4 * maxLineBytes;

/**
 * Reads recordings one after the other from files and folders, and from standard input for the path `-`. The memory
 * use doesn't grow with the number of recordings.
 */
export async function* readRecordings(
  paths: readonly string[],
  stdin: AsyncIterable<Uint8Array> = process.stdin,
): AsyncGenerator<ReplayRecording | UnreadableRecording> {
  const files = new Set((await Promise.all(paths.map(listRecordingFiles))).flat());
  // Each cluster has a folder with a file for each rule. Sorting by file name first keeps the files of a rule together.
  const sorted = [...files].sort((left, right) => compare(basename(left), basename(right)) || compare(left, right));
  for (const file of sorted) {
    const source: AsyncIterable<Uint8Array> = file === "-" ? stdin : createReadStream(file);
    try {
      for await (const parsed of parseRecordings(source)) yield { file, ...parsed };
    } catch (error) {
      throw new Complaint(`${file} can't be read: ${toSentence(error)}`);
    }
  }
}

const compare = (left: string, right: string) => {
  if (left === right) return 0;
  return left < right ? -1 : 1;
};

/** Returns the YAML files in a folder, or the path itself if it is a file or "-". */
const listRecordingFiles = async (path: string): Promise<string[]> => {
  if (path === "-") return [path];
  const stats = await stat(path).catch(() => undefined);
  if (stats === undefined) throw new Complaint(`${path} is no file or folder`);
  if (!stats.isDirectory()) return [normalize(path)];
  const entries = await readdir(path, { recursive: true, withFileTypes: true }).catch((error) => {
    throw new Complaint(`${path} can't be read: ${toSentence(error)}`);
  });
  return entries
    .filter((entry) => entry.isFile() && /\.ya?ml$/i.test(entry.name))
    .map(({ parentPath, name }) => join(parentPath, name));
};

type ParsedRecording = Omit<ReplayRecording, "file"> | Omit<UnreadableRecording, "file">;

/**
 * Parses a file of recordings, one per line, or a list of cases written by hand. The first line that isn't empty, a
 * comment or `---` decides: a file of recordings starts with `- {"`.
 */
async function* parseRecordings(source: AsyncIterable<Uint8Array>): AsyncGenerator<ParsedRecording> {
  let handWrittenLines: NumberedLine[] | undefined;
  let isRecorded = false;
  let characters = 0;
  for await (const line of readLines(source)) {
    const text = line.text?.trim();
    if (!isRecorded && handWrittenLines === undefined && (text === "" || text?.startsWith("#") || text === "---"))
      continue;
    // A line without text is too long or not UTF-8. A file that begins with such a line is taken for recordings: the
    // other lines of recordings can still be read, but a file of cases written by hand could not.
    if (handWrittenLines === undefined && (isRecorded || text === undefined || /^-\s*\{\s*"/.test(text))) {
      isRecorded = true;
      if (text !== "") yield parseRecording(line);
      continue;
    }
    handWrittenLines ??= [];
    handWrittenLines.push(line);
    characters += line.text?.length ?? 0;
    // A file of cases written by hand is parsed as a whole, so a line that can't be read ends it.
    const fault =
      characters > maxWrittenCharacters ? `makes this longer than ${maxWrittenCharacters} characters` : line.fault;
    if (fault !== undefined) {
      yield { line: line.number, sentence: fault };
      return;
    }
  }
  if (handWrittenLines !== undefined) yield* parseWrittenCases(handWrittenLines);
}

/** Returns the case in a line such as "- {…}", or a sentence that says what is wrong with the line. */
const parseRecording = ({ number: line, text = "", fault }: NumberedLine): ParsedRecording => {
  if (fault !== undefined) return { line, sentence: fault };
  const [, json] = /^-\s+(.*)$/.exec(text.trimEnd()) ?? [];
  if (json === undefined) return { line, sentence: "is no recording: each begins with a dash" };
  const value = parseJson(json);
  if (value === undefined) return { line, sentence: "is no recording: after the dash, it is not JSON" };
  return { line, ...readCase(value) };
};

/**
 * Parses cases written by hand, each of several lines. The number of YAML aliases is limited, because a small file
 * with nested aliases can expand to gigabytes.
 */
const parseWrittenCases = (lines: readonly NumberedLine[]): ParsedRecording[] => {
  const counter = new LineCounter();
  const firstLine = lines[0]?.number ?? 1;
  const text = lines.map(({ text }) => text).join("\n");
  const document = parseDocument(text, { prettyErrors: false, lineCounter: counter, logLevel: "silent" });
  const getLine = (offset: number) => counter.linePos(offset).line + firstLine - 1;
  const [syntaxError] = document.errors;
  if (syntaxError)
    return [{ line: getLine(syntaxError.pos[0]), sentence: `is no YAML: ${explainYamlError(syntaxError)}` }];
  const { contents } = document;
  if (!isSeq(contents)) return [{ line: firstLine, sentence: "is no list of cases" }];
  let values: unknown[];
  try {
    values = document.toJS({ maxAliasCount: 10_000 });
  } catch (error) {
    return [{ line: firstLine, sentence: `is no YAML: ${explainYamlError(error)}` }];
  }
  return contents.items.map((item, index) => {
    const offset = isNode(item) ? (item.range?.[0] ?? 0) : 0;
    return { line: getLine(offset), ...readCase(values[index]) };
  });
};

/** The shape of the objects that a recorded rule read. */
const objectsShape: InputShape = {
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
const answersShape = createMapListShape("a list of questions with answers", { answer: mapShape });
/** The members of a case's `needs`: the recorded answers to the rule's questions. `may`: whether users have rights. */
const needsMembers = {
  objects: objectsShape,
  https: answersShape,
  http: answersShape,
  aws: answersShape,
  may: createMapListShape("a list of questions that say whether it is allowed", { allowed: flagShape }),
  refused: createMapListShape("a list of names with a status", { status: mapShape }), // the refused reads and writes
  reads: createMapListShape("a list of maps"), // the reads that have a recorded answer
  discovery: mapShape,
  ledger: mapShape,
  cluster: textShape,
  plurals: textMapShape, // irregular plurals of kinds
};
const recordedMembers = {
  rule: { expected: "the name of a rule", type: "string" as const, pattern: ruleNamePattern.source },
  cluster: textShape,
};
/** The shape of a recorded case. Unknown members and minors are allowed: another version of Postern may write them. */
const caseShape = createMapShape(
  {
    ...caseMembers,
    kubernetes: minorShape,
    needs: createMapShape(needsMembers, anyShape),
    recorded: createMapShape(recordedMembers, anyShape),
  },
  anyShape,
);

/**
 * The maximum number of nested levels in a recorded case. Real objects have fewer. Without a limit, functions that
 * process a case recursively could overflow the stack and end the process.
 */
const maxNesting = 1000;

/** Returns a case with its recorded rule and cluster, or a sentence that says why it is no case. */
const readCase = (value: unknown): { entry: Case; rule?: string; cluster?: string } | { sentence: string } => {
  if (!isMap(value)) return { sentence: "is no case: a map is expected" };
  if (isDeeper(value, maxNesting)) return { sentence: `is no case: it is nested more than ${maxNesting} deep` };
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

/** A line of a file with its number, which starts at 1. A line that is too long or not UTF-8 has no text. */
interface NumberedLine {
  number: number;
  text?: string;
  fault?: string;
}

const newlineByte = 10;

/** Splits a stream of bytes into lines, in memory that a long line doesn't increase. */
export async function* readLines(
  source: AsyncIterable<Uint8Array>,
  maxBytes = maxLineBytes,
): AsyncGenerator<NumberedLine> {
  let number = 1;
  let parts: Uint8Array[] = [];
  let length = 0;
  const addPart = (part: Uint8Array) => {
    length += part.length;
    // The bytes of a line that is too long are counted, but not kept.
    if (length > maxBytes) parts = [];
    else if (part.length > 0) parts.push(part);
  };
  const finishLine = (): NumberedLine => {
    const line = decodeLine(number, parts, length, maxBytes);
    [number, parts, length] = [number + 1, [], 0];
    return line;
  };
  for await (const chunk of source) {
    let start = 0;
    for (let end = chunk.indexOf(newlineByte); end >= 0; end = chunk.indexOf(newlineByte, start)) {
      addPart(chunk.subarray(start, end));
      yield finishLine();
      start = end + 1;
    }
    addPart(chunk.subarray(start));
  }
  if (length > 0) yield finishLine();
}

const decodeLine = (number: number, parts: readonly Uint8Array[], length: number, maxBytes: number): NumberedLine => {
  if (length > maxBytes) return { number, fault: `is longer than ${maxBytes} bytes` };
  const bytes = Buffer.concat(parts);
  if (!isUtf8(bytes)) return { number, fault: "is not UTF-8" };
  return { number, text: bytes.toString().replace(/\r$/, "") };
};
