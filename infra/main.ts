import { Console } from "node:console";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { describeParseError, type ParsedArguments, parseArguments } from "./cli/arguments.ts";
import { type Command, formatTable, type ParsedOptions } from "./cli/command.ts";
import { Complaint, describeUnhandledRejection, toSentence } from "./cli/complaint.ts";
import { formatDidYouMean } from "./cli/did-you-mean.ts";
import { getProjectRoot, moduleExtension, openProject, packageRoot } from "./cli/roots.ts";
import { sanitizeTerminalText } from "./cli/terminal.ts";

const folder = join(packageRoot, "infra/commands");

export const runCommandLine = async (words: string[]): Promise<void> => {
  let mayEnd = false;
  // If the reader of standard output closes it, the process ends with the exit code that is set at this time.
  process.stdout.on("error", () => {
    mayEnd = true;
    process.exit();
  });
  failIfRulesEndProcess(() => mayEnd);
  process.exitCode = await runPostern(words);
  mayEnd = true;
};

/** Makes sure that code of rules, which runs in this process, neither ends it with success nor writes to its output. */
const failIfRulesEndProcess = (mayEnd: () => boolean): void => {
  const writeError = (line: string) => process.stderr.write(`${sanitizeTerminalText(line)}\n`);
  // Standard output is for results.
  globalThis.console = new Console(process.stderr);
  process.on("exit", (code) => {
    if (mayEnd() || (code !== 0 && code !== unsettledCode)) return;
    writeError("the command did not finish: code of a rule ended it, for instance by process.exit");
    process.exitCode = 3;
  });
  process.on("uncaughtException", (error, origin) => {
    const stack = error instanceof Error ? error.stack : undefined;
    if (origin === "unhandledRejection") writeError(describeUnhandledRejection(error, getProjectRoot()));
    else process.stderr.write(`${(stack ?? toSentence(error)).split("\n").map(sanitizeTerminalText).join("\n")}\n`);
    process.exit(3);
  });
};

/** The exit code of Node.js if nothing is left to do, but a promise that the program awaits isn't settled. */
const unsettledCode = 13;

/** Runs `postern VERB …`. Returns the exit code: 0 success, 1 denied or failed, 2 wrong usage, 3 could not evaluate. */
export const runPostern = (words: readonly string[]): Promise<number> => reportErrors(() => runVerb(words));

/** Runs a script of the repository, such as `npm run bench`, with the arguments of this process. */
export const runScript = async (name: string, command: Command): Promise<void> => {
  process.exitCode = await reportErrors(() => runCommand(name, command, process.argv.slice(2)));
};

/** Returns a command's exit code. Prints errors: the message of a Complaint, and the stack of other errors. */
const reportErrors = async (run: () => Promise<number>): Promise<number> => {
  try {
    return await run();
  } catch (error) {
    const isComplaint = error instanceof Complaint;
    const text = isComplaint ? error.message : (error instanceof Error && error.stack) || toSentence(error);
    // The message may contain names from manifests or clusters, and these may contain control characters.
    process.stderr.write(`${text.split("\n").map(sanitizeTerminalText).join("\n")}\n`);
    return isComplaint ? error.exitCode : 3;
  }
};

const listVerbs = async (): Promise<string[]> =>
  (await readdir(folder))
    .filter((file) => file.endsWith(moduleExtension))
    .map((file) => file.slice(0, -moduleExtension.length))
    .sort();

/** Returns the text that `--help` prints for each verb. */
export const describeAllVerbs = async (): Promise<{ verb: string; help: string }[]> =>
  Promise.all(
    (await listVerbs()).map(async (verb) => ({
      verb,
      help: describeCommand(`postern ${verb}`, await loadCommand(verb)),
    })),
  );

/** Runs the command that the first argument names, or prints help. */
const runVerb = async ([verb, ...verbArguments]: readonly string[]): Promise<number> => {
  const verbs = await listVerbs();
  if (verb === "--version") {
    process.stdout.write(`postern ${await readVersion()}\n`);
    return 0;
  }
  if (verb === "help" && verbArguments[0] !== undefined) return runVerb([verbArguments[0], "--help"]);
  if (verb === undefined || ["help", "--help", "-h"].includes(verb)) {
    process.stdout.write(await describeVerbs(verbs));
    return verb === undefined ? 2 : 0;
  }
  if (!verbs.includes(verb))
    throw new Complaint(
      [`postern has no verb "${verb}"`, `it has ${verbs.join(", ")}`, formatDidYouMean(verb, verbs).trim()]
        .filter(Boolean)
        .join("; "),
    );
  return runCommand(`postern ${verb}`, await loadCommand(verb), verbArguments);
};

/** Commands with one of these usages take exactly one word. The values, for messages: what it names, an example. */
const singleWordUsages: Record<string, [what: string, example: string]> = {
  CLUSTER: ["cluster", "local"],
  RULE: ["rule", "pod-security"],
  NAME: ["rule", "require-owner-label"],
};

/** Checks the arguments, opens the project, and runs the command. */
const runCommand = async (name: string, command: Command, args: string[]): Promise<number> => {
  const { values, words } = parseCommandArguments(name, command, args);
  if (values.help) {
    process.stdout.write(describeCommand(name, command));
    return 0;
  }
  const { usage } = command;
  if (words.length > 0 && usage === undefined) throw new Complaint(`${name} takes only options, not "${words[0]}"`);
  const [what, example] = singleWordUsages[usage ?? ""] ?? [];
  if (what !== undefined && words.length !== 1) throw new Complaint(`name one ${what}: ${name} ${example}`);
  // Checks the value of --output. A verb whose --output may be repeated checks the values itself.
  const { output } = command.options;
  const forms = output?.value?.split("|") ?? [];
  if (values.output !== undefined && !output?.multiple && !forms.includes(String(values.output)))
    throw new Complaint(`--output takes ${forms.join(" or ")}, not "${values.output}"`);
  const options = createOptions(values);
  openProject(command.options.config?.opensProject ? options.text("config") : undefined);
  return (await command.run({ options, words })) ?? 0;
};

const readVersion = async (): Promise<string> =>
  JSON.parse(await readFile(join(packageRoot, "package.json"), "utf8")).version;

const loadCommand = async (verb: string): Promise<Command> =>
  (await import(pathToFileURL(join(folder, `${verb}${moduleExtension}`)).href)).default;

const parseCommandArguments = (name: string, command: Command, args: string[]): ParsedArguments => {
  try {
    return parseArguments(args, command);
  } catch (error) {
    const errorWithSeparator = describeParseError(error, command); // ends with "; " or "? "
    throw new Complaint(`${name}: ${errorWithSeparator}${name} --help lists the options`);
  }
};

/** Returns functions that read the options of a command line by name. */
const createOptions = (values: Record<string, unknown>): ParsedOptions => ({
  text: (name) => (values[name] === undefined ? undefined : String(values[name])),
  texts: (name) => [values[name] ?? []].flat().map(String),
  flag: (name) => values[name] === true,
  number: (name) => {
    if (values[name] === undefined) return undefined;
    const number = Number(values[name]);
    if (!Number.isSafeInteger(number) || number < 0 || values[name] === "")
      throw new Complaint(`--${name} takes a whole number, not "${values[name]}"`);
    return number;
  },
});

const describeVerbs = async (verbs: string[]): Promise<string> => {
  const commands = await Promise.all(verbs.map(async (verb) => [verb, (await loadCommand(verb)).summary]));
  return `Usage: postern VERB\n\n${formatTable(commands)}\nRun postern VERB --help for the options of a verb.\n`;
};

const describeCommand = (name: string, { summary, usage, options }: Command): string => {
  const rows = Object.entries(options).map(([name, { short, value, says, multiple, default: defaultValue }]) => [
    `${short ? `-${short}, ` : ""}--${name}${value ? ` ${value}` : ""}${multiple ? "…" : ""}`,
    `${says}${defaultValue === undefined ? "" : ` (${defaultValue})`}`,
  ]);
  return `Usage: ${[name, usage, rows.length > 0 && "[OPTION…]"].filter(Boolean).join(" ")}\n\n${summary}\n\n${formatTable(rows)}${describeRepeatedOptions(options, usage)}`;
};

/** Returns the help's paragraph about options with several values; "" if the command has none. */
const describeRepeatedOptions = (options: Command["options"], usage = ""): string => {
  const [name] = Object.keys(options).filter((option) => options[option]?.multiple);
  if (name === undefined) return "";
  const words = usage.replace(/[[\]]/g, "");
  const order =
    words === "" ? "" : ` Write ${words} before such options or after --, so that it isn't read as a value.`;
  return `\nAn option with … takes several values: --${name} A B, or --${name} A --${name} B.${order}\n`;
};

// postern.js starts this file in a new process if it needs another version of Node.js. The call isn't awaited: verbs
// import this module, and would wait for it forever.
if (import.meta.main) {
  // postern.js has an IPC channel to this process. The channel closes even if postern.js is killed. This process then
  // ends as if it had got SIGTERM.
  process.once("disconnect", () => process.kill(process.pid, "SIGTERM"));
  process.channel?.unref();
  void runCommandLine(process.argv.slice(2));
}
