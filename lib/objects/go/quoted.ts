/** Returns a text as Go's %q shows it. */
export const quoteAsGo = (text: string): string =>
  `"${text.replace(/["\\]|[^\p{L}\p{M}\p{N}\p{P}\p{S} ]/gu, escapeCharacter)}"`;

/** The characters that Go writes as a backslash and a letter. */
const letters: Record<string, string> = {
  '"': '\\"',
  "\\": "\\\\",
  "\u0007": "\\a",
  "\b": "\\b",
  "\f": "\\f",
  "\n": "\\n",
  "\r": "\\r",
  "\t": "\\t",
  "\v": "\\v",
};

const escapeCharacter = (character: string): string => {
  const letter = letters[character];
  if (letter !== undefined) return letter;
  const code = character.codePointAt(0) ?? 0;
  const [mark, digits] = code < 0x80 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return `\\${mark}${code.toString(16).padStart(digits, "0")}`;
};
