import { exactJson } from "#lib/exact-json.ts";
import { isMap } from "#lib/json.ts";

export interface YamlIndentation {
  /** The number of spaces by which a map is indented below its key. */
  step: number;
  /** True if a list has the same indentation as its key. */
  hasUnindentedLists: boolean;
}

/** The layout in which kubectl prints YAML. */
const kubectlLayout: YamlIndentation = { step: 2, hasUnindentedLists: true };

/**
 * Returns objects as a stream of YAML documents. All YAML from this file means the same in YAML 1.1, which kubectl
 * reads, and in YAML 1.2.
 */
export const formatYamlDocuments = (objects: readonly object[]): string =>
  objects.map((object) => `${formatYamlLines(object).join("\n")}\n`).join("---\n");

/** Returns a value as lines of YAML. */
export const formatYamlLines = (value: unknown, layout = kubectlLayout): string[] => {
  const lines: string[] = [];
  addLines(value, "", lines, layout);
  return lines;
};

/** Adds the YAML lines of a value to `lines`. */
const addLines = (value: unknown, indent: string, lines: string[], layout: YamlIndentation): void => {
  if (isFilled(value) && Array.isArray(value))
    for (const item of value) {
      const firstLine = lines.length;
      addLines(item, `${indent}  `, lines, layout);
      // In the first line of the item, a dash replaces two spaces of the indentation.
      lines[firstLine] = `${indent}- ${(lines[firstLine] ?? "").slice(indent.length + 2)}`;
    }
  else if (isFilled(value) && isMap(value))
    for (const [key, inner] of Object.entries(value)) {
      let name = formatKey(key);
      if (name.length > longestKey) {
        lines.push(`${indent}? ${name}`);
        name = "";
      }
      if (!isFilled(inner)) addScalar(inner, indent, `${name}: `, lines);
      else {
        lines.push(`${indent}${name}:`);
        const isNotIndented = Array.isArray(inner) && layout.hasUnindentedLists;
        addLines(inner, isNotIndented ? indent : `${indent}${" ".repeat(layout.step)}`, lines, layout);
      }
    }
  else addScalar(value, indent, "", lines);
};

const isFilled = (value: unknown): value is object =>
  typeof value === "object" && value !== null && Object.keys(value).length > 0;

/** Adds the YAML lines of a text, number or empty value; `name` is for instance "image: ". */
const addScalar = (value: unknown, indent: string, name: string, lines: string[]): void => {
  // A text of several lines becomes a literal block (`|`), unless the block would change the text.
  if (typeof value !== "string" || !/^[^\s].*\n/.test(value) || /\n\n$/.test(value) || control.test(value)) {
    lines.push(`${indent}${name}${formatScalar(value)}`);
    return;
  }
  lines.push(`${indent}${name}|${value.endsWith("\n") ? "" : "-"}`);
  for (const line of value.replace(/\n$/, "").split("\n")) lines.push(line === "" ? "" : `${indent}  ${line}`);
};

/** Returns a value as YAML on one line, such as `{a: 1, b: [x, y]}`. */
export const formatYamlFlow = (value: unknown): string => {
  if (Array.isArray(value)) return `[${value.map(formatYamlFlow).join(", ")}]`;
  if (!isMap(value)) return formatScalar(value);
  return `{${Object.entries(value)
    .map(([key, inner]) => `${formatYamlFlowKey(key)}${formatYamlFlow(inner)}`)
    .join(", ")}}`;
};

/** Returns a key of a map on one line, with the colon after it: `a: `, or `? …: ` for a long key. */
export const formatYamlFlowKey = (key: string): string => {
  const name = formatKey(key);
  return `${name.length > longestKey ? "? " : ""}${name}: `;
};

const formatScalar = (value: unknown): string => {
  if (typeof value === "string") return needsQuotes(value) ? quoteText(value) : value;
  // A list or map that comes here is empty: callers write the members of others.
  if (Array.isArray(value)) return "[]";
  if (isMap(value)) return "{}";
  // YAML 1.1 reads `1e+21` as a text, because it has no dot; `1.0e+21` is a number.
  return (exactJson.stringify(value) ?? "null").replace(/^(-?\d)e/, "$1.0e");
};

/** Reports whether a text needs quotes: without them, YAML 1.1 or 1.2 could read something else, such as a number. */
export const needsQuotes = (text: string): boolean =>
  !/^[\w/][\w./@-]*(:[\w./@-]+)*$/.test(text) || word.test(text) || number.test(text);

/** Returns a text in quotes, on one line. Escapes characters that YAML forbids or reads as a line break. */
const quoteText = (text: string): string =>
  /["\\]/.test(text) && !/['\n\t]/.test(text) && !control.test(text)
    ? `'${text}'`
    : escapeControls(JSON.stringify(text.toWellFormed()));

/** Escapes the characters that YAML needs escaped in double quotes, but JSON doesn't escape. */
export const escapeControls = (text: string): string =>
  text.replace(controls, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** A cache of keys as YAML, by the key. */
const formattedKeys = new Map<string, string>();
const maxFormattedKeys = 5000;

/** Returns a key as YAML, in quotes if needed. Results are cached. */
const formatKey = (key: string): string => {
  let formatted = formattedKeys.get(key);
  if (formatted === undefined) {
    formatted = formatScalar(key);
    if (formattedKeys.size >= maxFormattedKeys) formattedKeys.clear();
    formattedKeys.set(key, formatted);
  }
  return formatted;
};

/** A longer key needs a question mark before it. YAML allows 1024 characters without one. */
export const longestKey = 1000;

const word = /^(y|n|yes|no|on|off|true|false|null)$/i;
/** Matches integers, floats, sexagesimals and times. kubectl ignores underscores, also in `0_x1f`. */
const number = /^(\d[\d_.,:+eEtTzZ-]*|0_*[xob].*|_.*|e-?\d+)$/i;

/** Matches a character that a literal block can't contain: YAML forbids it, or reads it as the end of a line. */
const control = /(?![\n\t])[\p{Cc}\p{Cs}\u2028\u2029\ufeff\ufffe\uffff]/u;
const controls = /[\u007f-\u009f\u2028\u2029\ufeff\ufffe\uffff]/g;
