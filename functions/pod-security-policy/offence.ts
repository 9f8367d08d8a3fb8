import type { Range } from "./policy.ts";

/** What a policy has against a pod, told one by one: most callers only want to know whether there is anything. */
export type Offences = Generator<string, void, undefined>;

export const invalid = (path: string, shown: string, detail = "") =>
  `${path}: Invalid value: ${shown}${detail && `: ${detail}`}`;
export const forbiddenAt = (path: string, detail: string) => `${path}: Forbidden: ${detail}`;

// Values, as Kubernetes 1.15 shows them.

/** A list of Go, which knows one without elements from none. */
export const shownList = (type: string, elements: readonly (string | number)[] | undefined) =>
  elements ? `[]${type}{${elements.map(shownElement).join(", ")}}` : `[]${type}(nil)`;
const shownElement = (element: string | number) => (typeof element === "string" ? quoted(element) : `${element}`);

export const shownRanges = (ranges: readonly Range[] = []) =>
  `[${ranges.map(({ min, max }) => `{${min} ${max}}`).join(" ")}]`;

/** A text in Go's quotes. */
export const quoted = (text: string) => `"${text.replace(/["\\\p{C}\p{Z}]/gu, escaped)}"`;

const named: Record<string, string> = {
  " ": " ",
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

const escaped = (character: string): string => {
  const code = character.codePointAt(0) ?? 0;
  const hexadecimal = (digits: number) => code.toString(16).padStart(digits, "0");
  if (code < 0x80) return named[character] ?? `\\x${hexadecimal(2)}`;
  return code > 0xffff ? `\\U${hexadecimal(8)}` : `\\u${hexadecimal(4)}`;
};
