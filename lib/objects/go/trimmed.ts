/**
 * Reports whether the character at an index of a text is white space in Go. JavaScript's `trim` differs: for it, U+FEFF
 * is white space, and U+0085 is not.
 */
const isSpace = (text: string, index: number): boolean =>
  /[\t-\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/.test(text.charAt(index));

/** Returns a text without the white space at both ends, as Go's strings.TrimSpace does. */
export const trimAsGo = (text: string): string => {
  let [start, end] = [0, text.length];
  while (start < end && isSpace(text, start)) start++;
  while (start < end && isSpace(text, end - 1)) end--;
  return text.slice(start, end);
};
