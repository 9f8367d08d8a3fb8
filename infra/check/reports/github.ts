import { sanitizeTerminalText } from "../../cli/terminal.ts";
import { type Denial, formatObjectName, type ObjectCheckResult } from "../evaluation/object-evaluation.ts";
import { type CheckResultReportWriter, formatDenial, toRepositoryPath } from "./check-report.ts";

/** Writes workflow commands, from which GitHub makes annotations beside the lines of a pull request. */
export const createGithubReport = (): CheckResultReportWriter => ({
  add: ({ checked }) => formatCommands(checked),
  end: ({ unreadableInputs }) => unreadableInputs.map(({ checked }) => formatCommands(checked)),
});

/** Returns the findings of an object as GitHub's workflow commands, such as ::error file=a.yaml::…. */
const formatCommands = (result: ObjectCheckResult): string => {
  const file = toRepositoryPath(result.file);
  const formatCommand = (
    command: "error" | "warning",
    finding: string,
    message: string,
    { line = result.line, column: col }: Pick<Denial, "line" | "column"> = {},
  ) => {
    const title = `${finding}: ${formatObjectName(result)}`;
    const properties = Object.entries({ ...(file !== undefined && { file, line, col }), title });
    const written = properties.flatMap(([key, value]) =>
      value === undefined ? [] : [`${key}=${escapeProperty(String(value))}`],
    );
    return `::${command} ${written.join(",")}::${escapeMessage(message)}\n`;
  };
  return [
    ...result.denials.map((denial) => formatCommand("error", denial.rule, formatDenial(denial), denial)),
    ...result.warnings.map(({ rule, text }) => formatCommand("warning", rule, text)),
    ...result.undecided.map((sentence) => formatCommand("warning", "undecided", sentence)),
  ].join("");
};

/**
 * Escapes a text and removes control characters, as the runner prints the decoded message. A workflow command ends with
 * its line: an escaped line break can't begin another command.
 */
const escapeMessage = (text: string): string =>
  text.split(/\r?\n/).map(sanitizeTerminalText).join("\n").replaceAll("%", "%25").replaceAll("\n", "%0A");

const escapeProperty = (text: string): string => escapeMessage(text).replaceAll(":", "%3A").replaceAll(",", "%2C");
