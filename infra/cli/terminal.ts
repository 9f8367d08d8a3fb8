/**
 * Text of anybody's as a terminal or a pipeline's log may show it: no control characters, nothing that turns its direction,
 * and nothing that GitHub (`::error`, `##[error]`) or Azure (`##vso[…]`) would take for a command.
 */
export const clean = (text: string): string =>
  text
    .toWellFormed()
    .replace(/[\p{Cc}\p{Bidi_Control}\u2028\u2029]/gu, "?")
    .replace(/##(?=\w*\[)/g, "#?")
    .replace(/^(\s*):(?=:)/, "$1?");

/** The same, on one line. */
export const oneLine = (text: string): string => clean(text.replace(/\s*\n\s*/g, " ").trim());

/** Its beginning, where it is longer. */
export const shortened = (text: string, longest: number): string =>
  text.length > longest ? `${text.slice(0, longest - 1).toWellFormed()}…` : text;
