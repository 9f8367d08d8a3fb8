import { type ParseArgsOptionDescriptor, parseArgs } from "node:util";
import { getErrorMessage } from "#lib/failure.ts";
import { formatDidYouMean } from "./did-you-mean.ts";

/** An option of a verb: what parseArgs reads, and what `--help` says. */
export type CommandOption = ParseArgsOptionDescriptor & {
  /** The placeholder for the value in help, for instance NAME. */
  value?: string;
  says: string;
  /**
   * Reports whether a word after this option is one of the option's values. Only for options that take several values.
   * `hasWordsBefore` is true if words of the verb, such as paths, stand before the option.
   */
  isValue?(word: string, hasWordsBefore: boolean): boolean;
  /** The next word is always the value of this option, even if it begins with a hyphen, such as `--v=2`. */
  takesFlags?: true;
  /** The value of this option is a postern.yaml. Its folder becomes the project. */
  opensProject?: true;
};

/** What a verb accepts on the command line: its options, and the words that follow it. */
export interface CommandGrammar {
  options: Record<string, CommandOption>;
  /** The words that the command takes after its verb, for instance `RULE` or `[RULE…]`; absent if it takes none. */
  usage?: string;
  /** The names of options that stand in place of words: with one of them, the verb takes no words. */
  optionsInPlaceOfWords?: readonly string[];
}

/** A verb's arguments: the values of its options, and the words that belong to no option. */
export interface ParsedArguments {
  values: Record<string, unknown>;
  words: string[];
}

/**
 * Splits the arguments of a verb into options and words. Throws the errors of parseArgs. Also throws for an option with
 * an empty value, and for an option that takes one value but is repeated.
 *
 * An option of several values may be repeated. After its first value, it can take words until the next option or `--`:
 * - If the verb takes no words, the option takes all of them.
 * - If the option has `isValue`, the option takes those up to the first one that `isValue` doesn't accept.
 * - Without `isValue`, the option takes all of them if words of the verb stand before it, or if a `--` follows.
 *   Otherwise the option takes none: `check --state DIR PATH` checks PATH.
 */
export const parseArguments = (
  args: string[],
  { options, usage, optionsInPlaceOfWords = [] }: CommandGrammar,
): ParsedArguments => {
  const allOptions: Record<string, ParseArgsOptionDescriptor> = { ...options, help: { type: "boolean", short: "h" } };
  const { values, tokens } = parseArgs({
    args: joinFlagValues(args, options),
    options: allOptions,
    allowPositionals: true,
    tokens: true,
  });
  for (const [name, option] of Object.entries(options)) {
    const given = tokens.filter((token) => token.kind === "option" && token.name === name);
    // parseArgs would ignore all values but the last one.
    if (option.type === "string" && !option.multiple && given.length > 1)
      throw new Error(`--${name} takes one value, and is given ${given.length} times`);
  }
  const takesNoWords = usage === undefined || optionsInPlaceOfWords.some((name) => values[name] !== undefined);
  const isEnded = tokens.some(({ kind }) => kind === "option-terminator");
  const words: string[] = [];
  /**
   * Returns the list of the last option's values if the word is one of them; undefined for a word of the verb. The loop
   * sets this function anew for each option. After a word of the verb, no word is a value until the next option.
   */
  let findValuesOfLastOption: (word: string) => string[] | undefined = () => undefined;
  for (const token of tokens) {
    if (token.kind === "positional") {
      const optionValues = findValuesOfLastOption(token.value);
      (optionValues ?? words).push(token.value);
      if (optionValues === undefined) findValuesOfLastOption = () => undefined;
      continue;
    }
    const option = token.kind === "option" ? options[token.name] : undefined;
    const list = token.kind === "option" && option?.multiple ? values[token.name] : undefined;
    const hasWordsBefore = isEnded || words.length > 0;
    const takesAll = takesNoWords || (option?.isValue === undefined && hasWordsBefore);
    findValuesOfLastOption = (word) =>
      Array.isArray(list) && (takesAll || option?.isValue?.(word, hasWordsBefore)) ? (list as string[]) : undefined;
  }
  const emptyOption = Object.keys(options).find((name) => [values[name]].flat().includes(""));
  if (emptyOption !== undefined)
    throw new Error(`--${emptyOption} takes ${options[emptyOption]?.value}, not an empty text`);
  return { values, words };
};

/** Joins the words `--flags` and `--v=2` to `--flags=--v=2`, because parseArgs refuses `--v=2` as a value. */
const joinFlagValues = (args: readonly string[], options: CommandGrammar["options"]): string[] => {
  const joined: string[] = [];
  for (let index = 0; index < args.length; index++) {
    const [word = "", value] = args.slice(index, index + 2);
    const areJoined = word.startsWith("--") && options[word.slice(2)]?.takesFlags && value !== undefined;
    joined.push(areJoined ? `${word}=${value}` : word);
    if (areJoined) index++;
  }
  return joined;
};

/**
 * Returns the beginning of the message for an error of parseArgs: the caller adds a hint about --help to it. For an
 * unknown option, suggests a similar one.
 */
export const describeParseError = (error: unknown, { options }: CommandGrammar): string => {
  const [sentence = ""] = getErrorMessage(error).split(/\.\s/);
  const [, ambiguousOption] = /^Option '(-.*)' argument is ambiguous/.exec(sentence) ?? [];
  const optionName = Object.keys(options).find((name) =>
    [`--${name}`, `-${options[name]?.short}`].includes(`${ambiguousOption}`),
  );
  if (optionName !== undefined)
    return `--${optionName} has no value; one that begins with a hyphen is written --${optionName}=-…; `;
  const [, unknownOption] = /^Unknown option '--([^']*)'$/.exec(sentence) ?? [];
  return `${sentence}; ${unknownOption === undefined ? "" : formatDidYouMean(unknownOption, [...Object.keys(options), "help"], "--")}`;
};
