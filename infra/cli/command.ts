// The files in infra/cli don't import code about rules, postern.yaml, AWS or clusters.
import type { CommandGrammar, CommandOption } from "./arguments.ts";
import { stringifySafely } from "./terminal.ts";

export type { CommandOption };

/** A verb of `postern`. The file commands/NAME.ts exports the verb NAME. */
export interface Command extends CommandGrammar {
  summary: string;
  /** Runs the verb, and resolves to its exit code; undefined means 0. */
  // biome-ignore lint/suspicious/noConfusingVoidType: a verb without an exit code of its own has no return statement
  run(input: { options: ParsedOptions; words: string[] }): Promise<number | void>;
}

/** The values of options. An option with a default always has a value. */
export interface ParsedOptions {
  text(name: string): string | undefined;
  /** Returns all values of a command-line option that may be repeated. */
  texts(name: string): string[];
  flag(name: string): boolean;
  number(name: string): number | undefined;
}

/** Options that most commands have. */
export const commonCommandOptions = {
  config: {
    type: "string",
    value: "FILE",
    opensProject: true,
    says: "the postern.yaml with the rules beside it (default: the nearest one)",
  },
  cluster: { type: "string", value: "NAME", says: "the cluster of postern.yaml; required if there are several" },
  output: { type: "string", short: "o", value: "json", says: "print JSON" },
} satisfies Record<string, CommandOption>;

/** Returns rows as lines of text, with columns of equal width. */
export const formatTable = (rows: (string | undefined)[][]): string => {
  const widths = rows[0]?.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0))) ?? [];
  return rows
    .map(
      (row) =>
        `${row
          .map((cell = "", column) => cell.padEnd(widths[column] ?? 0))
          .join("  ")
          .trimEnd()}\n`,
    )
    .join("");
};

export const writeOutput = (text: string) => void process.stdout.write(text);

export const writeJson = (value: unknown) => writeOutput(`${stringifySafely(value)}\n`);

/** Prints a line to standard error, so that it is no part of a command's output. */
export const writeNote = (line: string) => void process.stderr.write(`${line}\n`);
