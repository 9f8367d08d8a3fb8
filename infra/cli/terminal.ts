/**
 * Makes text of any origin safe for a terminal or a pipeline's log: replaces what `escapeUnsafeCharacters` finds, and
 * the first colon of a text such as `::error`, which GitHub would execute as a command.
 */
export const sanitizeTerminalText = (text: string): string =>
  escapeUnsafeCharacters(text.toWellFormed(), () => "?").replace(/^(\s*):(?=:)/, "$1?");

/**
 * Replaces control characters (also line breaks), characters that change the text direction, and the second `#` of
 * texts such as `##[error]` and `##vso[…]`, which GitHub or Azure would execute as a command.
 */
export const escapeUnsafeCharacters = (text: string, replace: (character: string) => string): string =>
  text.replace(/[\p{Cc}\p{Bidi_Control}\u2028\u2029]|(?<=#)#(?=\w*\[)/gu, replace);

/** Returns indented JSON that is safe for a terminal or a pipeline's log. Parsing the JSON gives the same value. */
export const stringifySafely = (value: unknown): string =>
  escapeUnsafeCharacters(JSON.stringify(value, null, 2), (character) =>
    character === "\n" ? character : `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );

/** Returns text of any origin as one line that is safe for a terminal. */
export const toOneLine = (text: string): string => sanitizeTerminalText(text.replace(/\s*\n\s*/g, " ").trim());

/** Returns a text of at most `maxLength` characters. */
export const truncateText = (text: string, maxLength: number): string =>
  text.length > maxLength ? `${text.slice(0, maxLength - 1).toWellFormed()}…` : text;

/** Puts a word in single quotes if a shell could change the word. */
export const quoteForShell = (word: string): string =>
  /^[\w:./-]+$/.test(word) ? word : `'${toOneLine(word).replaceAll("'", "'\\''")}'`;
