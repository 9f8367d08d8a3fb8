import { escapeControls } from "../../cli/terminal.ts";
import { type Checked, describeObject } from "../evaluation/evaluation.ts";
import { formatDenial, lineOf, type Plain, toRepositoryPath } from "./report.ts";

/** Writes workflow commands, from which GitHub makes annotations beside the lines of a pull request. */
export const github = (): Plain => ({
  add: ({ checked }) => commandsOf(checked),
  end: ({ unread }) => unread.map(({ checked }) => commandsOf(checked)),
});

const commandsOf = (one: Checked): string => {
  const lines: string[] = [];
  const file = toRepositoryPath(one.file);
  const say = (command: "error" | "warning", title: string, message: string, line = one.line, col?: number) => {
    const properties = { ...(file !== undefined && { file, line, col }), title };
    const written = Object.entries(properties).flatMap(([key, value]) =>
      value === undefined ? [] : [`${key}=${escapedProperty(String(value))}`],
    );
    lines.push(`::${command} ${written.join(",")}::${escaped(message)}\n`);
  };
  for (const denial of one.denials)
    say("error", `${denial.rule}: ${describeObject(one)}`, formatDenial(denial), lineOf(one, denial), denial.column);
  for (const { rule, text } of one.warnings) say("warning", `${rule}: ${describeObject(one)}`, text);
  for (const sentence of one.undecided) say("warning", `can't say: ${describeObject(one)}`, sentence);
  return lines.join("");
};

/**
 * Escapes a text and removes control characters, as the runner prints the decoded message. A workflow command ends with
 * its line: an escaped line break can't begin another command.
 */
const escaped = (text: string): string =>
  text.split(/\r?\n/).map(escapeControls).join("\n").replaceAll("%", "%25").replaceAll("\n", "%0A");

const escapedProperty = (text: string): string => escaped(text).replaceAll(":", "%3A").replaceAll(",", "%2C");
