/**
 * Makes text of any origin safe for a terminal or a pipeline's log: removes control characters, characters that turn
 * the text direction, and what GitHub (`::error`, `##[error]`) or Azure (`##vso[…]`) would take for a command.
 */
export const sanitizeTerminalText = (text: string): string =>
  escapeUnsafeCharacters(text.toWellFormed(), () => "?").replace(/^(\s*):(?=:)/, "$1?");

/**
 * Escapes control characters, line breaks among them, characters that turn the text direction, and the second `#` of
 * what GitHub or Azure would take for a command within a line.
 */
export const escapeUnsafeCharacters = (text: string, replace: (character: string) => string): string =>
  text.replace(/[\p{Cc}\p{Bidi_Control}\u2028\u2029]|(?<=#)#(?=\w*\[)/gu, replace);

/** Returns a value as indented JSON that is safe for a terminal or a pipeline's log; parsed, it is the same value. */
export const stringifySafely = (value: unknown): string =>
  escapeUnsafeCharacters(JSON.stringify(value, null, 2), (character) =>
    character === "\n" ? character : `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );

export const toOneLine = (text: string): string => sanitizeTerminalText(text.replace(/\s*\n\s*/g, " ").trim());

export const truncateText = (text: string, longest: number): string =>
  text.length > longest ? `${text.slice(0, longest - 1).toWellFormed()}…` : text;

export const quoteForShell = (word: string): string =>
  /^[\w:./-]+$/.test(word) ? word : `'${toOneLine(word).replaceAll("'", "'\\''")}'`;
