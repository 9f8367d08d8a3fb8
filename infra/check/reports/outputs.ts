import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { rmSync } from "node:fs";
import { open, realpath, rename, stat } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { Complaint, toSentence } from "../../cli/complaint.ts";
import type { ObjectEvaluation } from "../evaluation/object-evaluation.ts";
import type { CheckReportWriter, FinishedCheck } from "./check-report.ts";

/** A form of report and its file; standard output if there is no file. */
export interface ReportOutput {
  form: string;
  file?: string;
}

/**
 * Parses values of `--output` such as `text` and `sarif=out.sarif`. Adds text on standard output if all reports go to
 * files.
 */
export const parseOutputOptions = (texts: readonly string[], forms: readonly string[]): ReportOutput[] => {
  const outputs = texts.map((text): ReportOutput => {
    const [, form = "", file] = /^([^=]*)(?:=(.*))?$/s.exec(text) ?? [];
    if (!forms.includes(form))
      throw new Complaint(`--output takes ${forms.join(", ")}, each with =FILE behind it or not, not "${text}"`);
    if (file === "") throw new Complaint(`--output ${form}= must name a file`);
    return { form, ...(file !== undefined && { file }) };
  });
  const files = outputs.flatMap(({ file }) => file ?? []);
  const twice = files.find((file, index) => files.findIndex((other) => resolve(other) === resolve(file)) < index);
  if (twice) throw new Complaint(`${twice} can hold one report; give each --output a file of its own`);
  const printed = outputs.filter(({ file }) => file === undefined);
  const exclusive = printed.find(({ form }) => form !== "text" && form !== "github");
  if (exclusive && printed.length > 1) {
    const forms = printed.map(({ form }) => form).join(" and ");
    throw new Complaint(`${forms} can't share standard output; give one a file, as in -o ${exclusive.form}=FILE`);
  }
  return printed.length > 0 ? outputs : [{ form: "text" }, ...outputs];
};

/** Throws if a report would replace one of the files that the check reads. */
export const refuseInputsAsReports = async (
  outputs: readonly ReportOutput[],
  inputs: readonly string[],
): Promise<void> => {
  const files = outputs.flatMap(({ file }) => file ?? []);
  if (files.length === 0) return;
  const read = new Set(await Promise.all(inputs.map(identifyFile)));
  for (const file of files) {
    const id = await identifyFile(file);
    if (id !== undefined && read.has(id))
      throw new Complaint(`--output ${file} would replace a file that this check reads; give the report another file`);
  }
};

/** Identifies the file at a path, also through links; undefined if there is no regular file. */
const identifyFile = async (path: string): Promise<string | undefined> => {
  const found = await stat(path, { bigint: true }).catch(() => undefined);
  return found?.isFile() ? `${found.dev} ${found.ino}` : undefined;
};

interface Sink {
  write(text: string): Promise<void>;
  end(): Promise<void>;
  /** Discards the report; a file keeps its former content. */
  abandon(): Promise<void>;
}

/** Opens the reports of these outputs; `prepareWrite` is called before each write to standard output. */
export const openReportWriter = async (
  outputs: readonly ReportOutput[],
  reportOf: (output: ReportOutput) => Promise<CheckReportWriter>,
  prepareWrite: () => void,
) => {
  const open: { report: CheckReportWriter; sink: Sink }[] = [];
  const abandon = async () => {
    for (const { sink } of open) await sink.abandon();
  };
  try {
    for (const output of outputs) {
      const sink = output.file === undefined ? openStdoutSink(prepareWrite) : await openFileSink(output.file);
      open.push({ report: await reportOf(output), sink });
    }
  } catch (error) {
    await abandon();
    throw error;
  }
  return {
    add: async (evaluation: ObjectEvaluation) => {
      for (const { report, sink } of open) {
        const text = report.add(evaluation);
        if (text !== "") await sink.write(text);
      }
    },
    end: async (closing: FinishedCheck) => {
      for (const { report, sink } of open) {
        for (const text of report.end(closing)) await sink.write(text);
        await sink.end();
      }
    },
    abandon,
  };
};

/** Writes a report to standard output, and ends the process if the reader has gone. */
const openStdoutSink = (prepareWrite: () => void): Sink => {
  process.stdout.prependListener("error", exitWithoutReader);
  const removeListener = async () => void process.stdout.off("error", exitWithoutReader);
  return {
    write: async (text) => {
      prepareWrite();
      if (!process.stdout.write(text)) await once(process.stdout, "drain");
    },
    end: removeListener,
    abandon: removeListener,
  };
};

/** Exits with 3 if standard output is closed early: without a verdict, the exit code must not be 0. */
const exitWithoutReader = () => process.exit(3);

/** The number of characters of a report that are collected for one write. */
const chunk = 64 * 1024;

/**
 * Opens a report's file. The text goes to a temporary file, which is renamed at the end: until then, the report's
 * file has its former content.
 */
export const openFileSink = async (file: string): Promise<Sink> => {
  const rethrowAsComplaint = <T>(promise: Promise<T>): Promise<T> =>
    promise.catch((error) => {
      throw new Complaint(`${file} can't be written: ${toSentence(error)}`);
    });
  // The report is written to the target of a symbolic link, so that the link itself stays.
  const goal = await realpath(file).catch(() => file);
  const found = await stat(goal).catch(() => undefined);
  if (found?.isDirectory()) throw new Complaint(`${file} can't be written: it is a folder`);
  const parent = dirname(goal);
  if (!(await stat(parent).catch(() => undefined))?.isDirectory())
    throw new Complaint(`${file} can't be written: there is no folder ${parent}`);
  // A pipe or a terminal is written directly, because a rename can't replace it.
  const isFile = found === undefined || found.isFile();
  const place = isFile ? `${goal}.${randomUUID().slice(0, 8)}` : goal;
  const handle = await rethrowAsComplaint(open(place, isFile ? "wx" : "w"));
  // Removes the temporary file, however the program ends.
  const remove = () => rmSync(place, { force: true });
  if (isFile) process.once("exit", remove);
  let waiting = "";
  const flush = async () => {
    const text = waiting;
    waiting = "";
    await rethrowAsComplaint(handle.appendFile(text));
  };
  return {
    write: async (text) => {
      waiting += text;
      if (waiting.length > chunk) await flush();
    },
    end: async () => {
      await flush();
      await handle.close();
      if (!isFile) return;
      await rethrowAsComplaint(rename(place, goal));
      process.off("exit", remove);
    },
    abandon: async () => {
      await handle.close();
      if (!isFile) return;
      remove();
      process.off("exit", remove);
    },
  };
};
