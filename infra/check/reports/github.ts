import { sanitizeTerminalText } from "../../cli/terminal.ts";
import { formatObjectName, type ObjectCheckResult } from "../evaluation/object-evaluation.ts";
import { type CheckResultReportWriter, formatDenial, getDenialLine, toRepositoryPath } from "./check-report.ts";

/** Writes workflow commands, from which GitHub makes annotations beside the lines of a pull request. */
export const createGithubReport = (): CheckResultReportWriter => ({
  add: ({ checked }) => formatCommands(checked),
  end: ({ unread }) => unread.map(({ checked }) => formatCommands(checked)),
});

const formatCommands = (result: ObjectCheckResult): string => {
  const lines: string[] = [];
  const file = toRepositoryPath(result.file);
  const addCommand = (
    command: "error" | "warning",
    title: string,
    message: string,
    line = result.line,
    col?: number,
  ) => {
    const properties = { ...(file !== undefined && { file, line, col }), title };
    const written = Object.entries(properties).flatMap(([key, value]) =>
      value === undefined ? [] : [`${key}=${escapeProperty(String(value))}`],
    );
    lines.push(`::${command} ${written.join(",")}::${escapeMessage(message)}\n`);
  };
  for (const denial of result.denials)
    addCommand(
      "error",
      `${denial.rule}: ${formatObjectName(result)}`,
      formatDenial(denial),
      getDenialLine(result, denial),
      denial.column,
    );
  for (const { rule, text } of result.warnings) addCommand("warning", `${rule}: ${formatObjectName(result)}`, text);
  for (const sentence of result.undecided) addCommand("warning", `undecided: ${formatObjectName(result)}`, sentence);
  return lines.join("");
};

/**
 * Escapes a text and removes control characters, as the runner prints the decoded message. A workflow command ends with
 * its line: an escaped line break can't begin another command.
 */
const escapeMessage = (text: string): string =>
  text.split(/\r?\n/).map(sanitizeTerminalText).join("\n").replaceAll("%", "%25").replaceAll("\n", "%0A");

const escapeProperty = (text: string): string => escapeMessage(text).replaceAll(":", "%3A").replaceAll(",", "%2C");
