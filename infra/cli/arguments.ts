import { type ParseArgsOptionDescriptor, parseArgs } from "node:util";
import { getErrorMessage } from "#lib/failure.ts";
import { formatDidYouMean } from "./did-you-mean.ts";

/** An option of a verb: what parseArgs reads, and what `--help` says. */
export type CommandOption = ParseArgsOptionDescriptor & {
  /** The placeholder for the value in help, for instance NAME. */
  value?: string;
  says: string;
  /**
   * Reports whether the next word is one more value of this option. Only for options that take several values. Where
   * `hasWords` is true, words of the verb stand before the option, so that files need not decide what the word is.
   */
  isValue?(word: string, hasWords: boolean): boolean;
  /** True if the next word is the value even if it begins with a hyphen, as the flags of another program do. */
  takesFlags?: true;
  /** True if the value is a postern.yaml, whose folder is the project then. */
  opensProject?: true;
};

/** What a verb accepts on the command line: its options, and the words that follow it. */
export interface CommandGrammar {
  options: Record<string, CommandOption>;
  /** The words that the command takes after its verb, for instance `RULE` or `[RULE…]`; absent if it takes none. */
  usage?: string;
  /** The names of options that exclude words: if one of these options is given, the verb takes no words. */
  wordless?: readonly string[];
}

/** A verb's arguments: the values of its options, and the words that are no options. */
export interface ParsedArguments {
  values: Record<string, unknown>;
  words: string[];
}

/**
 * Splits the arguments of a verb into options and words. Throws what parseArgs throws, and for an option that has an
 * empty value, or several where it takes one.
 *
 * An option that takes several values may be repeated, and takes the words that follow it: those that its `isValue`
 * accepts. Without `isValue`, as with paths, it takes all of them where words of the verb stand before it or behind
 * `--`, and else none, so that `check --state DIR PATH` still checks PATH. If the verb takes no words, all are values.
 */
export const parseArguments = (args: string[], { options, usage, wordless = [] }: CommandGrammar): ParsedArguments => {
  const all: Record<string, ParseArgsOptionDescriptor> = { ...options, help: { type: "boolean", short: "h" } };
  const { values, tokens } = parseArgs({
    args: joinFlagValues(args, options),
    options: all,
    allowPositionals: true,
    tokens: true,
  });
  for (const [name, option] of Object.entries(options)) {
    const given = tokens.filter((token) => token.kind === "option" && token.name === name);
    // parseArgs would take the last one.
    if (option.type === "string" && !option.multiple && given.length > 1)
      throw new Error(`--${name} takes one value, and is given ${given.length} times`);
  }
  const isWordless = usage === undefined || wordless.some((name) => values[name] !== undefined);
  const isEnded = tokens.some(({ kind }) => kind === "option-terminator");
  const words: string[] = [];
  let takes: (word: string) => string[] | undefined = () => undefined;
  for (const token of tokens) {
    if (token.kind === "positional") {
      const list = takes(token.value) ?? words;
      list.push(token.value);
      if (list === words) takes = () => undefined;
      continue;
    }
    const option = token.kind === "option" ? options[token.name] : undefined;
    const list = token.kind === "option" && option?.multiple ? values[token.name] : undefined;
    const hasWords = isEnded || words.length > 0;
    const takesAll = isWordless || (option?.isValue === undefined && hasWords);
    takes = (word) =>
      Array.isArray(list) && (takesAll || option?.isValue?.(word, hasWords)) ? (list as string[]) : undefined;
  }
  const empty = Object.keys(options).find((name) => [values[name]].flat().includes(""));
  if (empty !== undefined) throw new Error(`--${empty} takes ${options[empty]?.value}, not an empty text`);
  return { values, words };
};

/** Joins `--flags` and `--a=b` to `--flags=--a=b`: parseArgs refuses a separate value that begins with a hyphen. */
const joinFlagValues = (args: readonly string[], options: CommandGrammar["options"]): string[] => {
  const joined: string[] = [];
  for (let index = 0; index < args.length; index++) {
    const [word = "", value] = args.slice(index, index + 2);
    const isJoined = word.startsWith("--") && options[word.slice(2)]?.takesFlags && value !== undefined;
    joined.push(isJoined ? `${word}=${value}` : word);
    if (isJoined) index++;
  }
  return joined;
};

/** Returns the sentence for an error of parseArgs, with a suggestion for an unknown option. */
export const describeParseError = (error: unknown, { options }: CommandGrammar): string => {
  const [first = ""] = getErrorMessage(error).split(/\.\s/);
  const [, ambiguous] = /^Option '(-.*)' argument is ambiguous/.exec(first) ?? [];
  const named = Object.keys(options).find((name) => [`--${name}`, `-${options[name]?.short}`].includes(`${ambiguous}`));
  if (named !== undefined) return `--${named} has no value; one that begins with a hyphen is written --${named}=-…; `;
  const [, unknown] = /^Unknown option '--([^']*)'$/.exec(first) ?? [];
  return `${first}; ${unknown === undefined ? "" : formatDidYouMean(unknown, [...Object.keys(options), "help"], "--")}`;
};
