import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { rmSync } from "node:fs";
import { open, realpath, rename, stat } from "node:fs/promises";
import { resolve } from "node:path";
import { Complaint, sentenceOf } from "../../cli/complaint.ts";
import type { Evaluation } from "../evaluation/environment.ts";
import type { Closing, Report } from "./report.ts";

/** A form in which findings are told, and the file that it goes to; standard output where there is none. */
export interface Output {
  form: string;
  file?: string;
}

/** What `-o text -o sarif=out.sarif` wants; text alone where nothing is said. */
export const parseOutputs = (said: readonly string[], forms: readonly string[]): Output[] => {
  const outputs = said.map((one): Output => {
    const [, form = "", file] = /^([^=]*)(?:=(.*))?$/s.exec(one) ?? [];
    if (!forms.includes(form))
      throw new Complaint(`--output takes ${forms.join(", ")}, each with =FILE behind it or not, not "${one}"`);
    if (file === "") throw new Complaint(`--output ${form}= must name a file`);
    return { form, ...(file !== undefined && { file }) };
  });
  const twice = outputs.find(
    ({ file }, index) => file && outputs.findIndex((one) => one.file && resolve(one.file) === resolve(file)) < index,
  );
  if (twice) throw new Complaint(`${twice.file} can hold one report; give each --output a file of its own`);
  const printed = outputs.filter(({ file, form }) => file === undefined && form !== "text" && form !== "github");
  if (
    printed.length > 1 ||
    (printed.length === 1 && outputs.some(({ file }, index) => file === undefined && outputs[index] !== printed[0]))
  )
    throw new Complaint(
      `${outputs
        .filter(({ file }) => file === undefined)
        .map(({ form }) => form)
        .join(" and ")} can't share standard output; give one a file, as in -o ${printed[0]?.form}=FILE`,
    );
  // Files are for machines; somebody may look on.
  return outputs.some(({ file }) => file === undefined) ? outputs : [{ form: "text" }, ...outputs];
};

/** Where a report goes, piece by piece. */
interface Sink {
  write(text: string): Promise<void>;
  /** All is written. */
  end(): Promise<void>;
  /** Nothing shall come of it. */
  abandon(): Promise<void>;
}

/** Reports on their way to where they are wanted. */
export interface Outlets {
  add(evaluation: Evaluation): Promise<void>;
  end(closing: Closing): Promise<void>;
  abandon(): Promise<void>;
}

/** What is found from now on goes to these; `before` is done each time that something is printed. */
export const openOutlets = async (
  outputs: readonly Output[],
  reportOf: (output: Output) => Report,
  before: () => void,
): Promise<Outlets> => {
  const open: { report: Report; sink: Sink }[] = [];
  const abandon = async () => {
    for (const { sink } of open) await sink.abandon();
  };
  try {
    for (const output of outputs) {
      const sink = output.file === undefined ? printed(before) : await filed(output.file);
      open.push({ report: reportOf(output), sink });
    }
  } catch (error) {
    await abandon();
    throw error;
  }
  return {
    add: async (evaluation) => {
      for (const { report, sink } of open) {
        const text = report.add(evaluation);
        if (text !== "") await sink.write(text);
      }
    },
    end: async (closing) => {
      for (const { report, sink } of open) {
        for (const text of report.end(closing)) await sink.write(text);
        await sink.end();
      }
    },
    abandon,
  };
};

/** Standard output, as fast as somebody reads it. */
const printed = (before: () => void): Sink => {
  process.stdout.prependListener("error", unheard);
  const done = async () => void process.stdout.off("error", unheard);
  return {
    write: async (text) => {
      before();
      if (!process.stdout.write(text)) await once(process.stdout, "drain");
    },
    end: done,
    abandon: done,
  };
};

/** Whoever stops reading before there is a verdict is not told that all is well. */
const unheard = () => process.exit(3);

/** Written in one go. */
const chunk = 64 * 1024;

/** A file that has all of it in the end, and until then what it had before: it is written under another name. */
const filed = async (file: string): Promise<Sink> => {
  const attempt = <T>(promise: Promise<T>): Promise<T> =>
    promise.catch((error) => {
      throw new Complaint(`${file} can't be written: ${sentenceOf(error)}`);
    });
  // What a link leads to is written, and not the link.
  const goal = await realpath(file).catch(() => file);
  const found = await stat(goal).catch(() => undefined);
  if (found?.isDirectory()) throw new Complaint(`${file} can't be written: it is a folder`);
  // A pipe or a terminal can't be had under another name.
  const isFile = found === undefined || found.isFile();
  const place = isFile ? `${goal}.${randomUUID().slice(0, 8)}` : goal;
  const handle = await attempt(open(place, isFile ? "wx" : "w"));
  // However the program ends.
  const remove = () => rmSync(place, { force: true });
  if (isFile) process.once("exit", remove);
  let waiting = "";
  const flush = async () => {
    const text = waiting;
    waiting = "";
    await attempt(handle.appendFile(text));
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
      await attempt(rename(place, goal));
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
