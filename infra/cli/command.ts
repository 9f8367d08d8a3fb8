// What every verb is made of. Nothing in this folder knows rules, postern.yaml, AWS or clusters.
import type { Grammar, Option } from "./arguments.ts";

export type { Option };

/** A verb: one file under commands/, named as the verb. */
export interface Command extends Grammar {
  summary: string;
  /** Answers the exit code; nothing is 0. */
  // biome-ignore lint/suspicious/noConfusingVoidType: a verb that says nothing has no return statement
  run(input: { options: Options; words: string[] }): Promise<number | void>;
}

/** Values by option; those with a default are always there. */
export interface Options {
  text(name: string): string | undefined;
  /** Of one that may be given several times. */
  texts(name: string): string[];
  flag(name: string): boolean;
  number(name: string): number | undefined;
}

/** Options that several verbs take. */
export const common = {
  config: { type: "string", value: "FILE", says: "read this instead of postern.yaml" },
  cluster: { type: "string", value: "NAME", says: "which cluster of postern.yaml; needed where there are several" },
  output: { type: "string", short: "o", value: "json", says: "print JSON" },
} satisfies Record<string, Option>;

/** Rows as columns of equal width. */
export const table = (rows: (string | undefined)[][]): string => {
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

export const print = (text: string) => void process.stdout.write(text);
