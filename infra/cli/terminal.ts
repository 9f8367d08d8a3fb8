/**
 * Makes text of any origin safe for a terminal or a pipeline's log: removes control characters, characters that turn
 * the text direction, and what GitHub (`::error`, `##[error]`) or Azure (`##vso[…]`) would take for a command.
 */
export const sanitizeTerminalText = (text: string): string =>
  text
    .toWellFormed()
    .replace(/[\p{Cc}\p{Bidi_Control}\u2028\u2029]/gu, "?")
    .replace(/##(?=\w*\[)/g, "#?")
    .replace(/^(\s*):(?=:)/, "$1?");

export const toOneLine = (text: string): string => sanitizeTerminalText(text.replace(/\s*\n\s*/g, " ").trim());

export const truncateText = (text: string, longest: number): string =>
  text.length > longest ? `${text.slice(0, longest - 1).toWellFormed()}…` : text;
