const limits = { item: 256, total: 4096 };

/**
 * Returns the warnings that the client gets, in order, without duplicates and texts with control characters. Once the
 * total exceeds its limit, each text, also an earlier one, is cut to the limit of an item, and further texts are added
 * only until the total of the cut texts reaches its limit.
 */
export const limitWarnings = (texts: readonly string[]): string[] => {
  const ordered = new Set<string>();
  let headers: string[] = [];
  let written = 0;
  let truncating = false;
  for (const text of texts) {
    if (text === "" || (truncating && written >= limits.total) || ordered.has(text)) continue;
    ordered.add(text);
    const header = truncating ? truncateWarning(text) : text;
    if (!isSendableWarningText(header)) continue;
    const length = countCodePoints(header);
    if (truncating || written + length <= limits.total) {
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
  text.length <= limits.item ? text : [...text].slice(0, limits.item).join("");
const countCodePoints = (text: string): number => [...text].length;

/** Reports whether a text can be sent in a warning header; other texts don't reach the client. */
export const isSendableWarningText = (text: string): boolean =>
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what keeps a text from being sent
  text !== "" && text.isWellFormed() && !/[\u0000-\u001f\u007f-\u009f]/.test(text);
