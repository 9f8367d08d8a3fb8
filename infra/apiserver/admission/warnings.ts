const limits = { oneWarning: 256, allWarnings: 4096 };

/**
 * Returns the warnings that the client gets, in order, without duplicates and texts with control characters. Once they
 * exceed the limit for all warnings together, each warning, also an earlier one, is cut to the limit for one warning,
 * and further warnings are added only until the cut warnings together reach their limit.
 */
export const limitWarnings = (texts: readonly string[]): string[] => {
  const ordered = new Set<string>();
  let headers: string[] = [];
  let written = 0;
  let truncating = false;
  for (const text of texts) {
    if (text === "" || (truncating && written >= limits.allWarnings) || ordered.has(text)) continue;
    ordered.add(text);
    const header = truncating ? truncateWarning(text) : text;
    if (!isSendableWarningText(header)) continue;
    const length = countCodePoints(header);
    if (truncating || written + length <= limits.allWarnings) {
      written += length;
      headers.push(header);
      continue;
    }
    truncating = true;
    headers = [...ordered].map(truncateWarning).filter(isSendableWarningText);
    written = headers.reduce((sum, line) => sum + countCodePoints(line), 0);
  }
  return headers;
};

const truncateWarning = (text: string): string =>
  text.length <= limits.oneWarning ? text : [...text].slice(0, limits.oneWarning).join("");
const countCodePoints = (text: string): number => [...text].length;

/** Reports whether a text can be sent in a warning header; other texts don't reach the client. */
export const isSendableWarningText = (text: string): boolean =>
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what keeps a text from being sent
  text !== "" && text.isWellFormed() && !/[\u0000-\u001f\u007f-\u009f]/.test(text);
