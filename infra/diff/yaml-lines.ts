import { exactJson } from "#lib/exact-json.ts";
import { isMap } from "#lib/json.ts";

export interface YamlIndentation {
  /** The number of spaces by which a map is indented below its key. */
  step: number;
  /** True if a list has the same indentation as its key. */
  isFlat: boolean;
}

/** The default YAML layout, as kubectl prints it: indented by 2, and lists not indented further. */
const usual: YamlIndentation = { step: 2, isFlat: true };

/**
 * Returns objects as a YAML stream. As everything in this file, it means the same in YAML 1.1, which kubectl reads, and in
 * YAML 1.2.
 */
export const formatYamlDocuments = (objects: readonly object[]): string =>
  objects.map((object) => `${formatYamlLines(object).join("\n")}\n`).join("---\n");

export const formatYamlLines = (value: unknown, layout = usual): string[] => {
  const lines: string[] = [];
  addLines(value, "", lines, layout);
  return lines;
};

const addLines = (value: unknown, indent: string, lines: string[], layout: YamlIndentation): void => {
  if (isFilled(value) && Array.isArray(value))
    for (const item of value) {
      const from = lines.length;
      addLines(item, `${indent}  `, lines, layout);
      // The dash of a YAML list replaces the indentation of the item's first line.
      lines[from] = `${indent}- ${(lines[from] ?? "").slice(indent.length + 2)}`;
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
        const isLevel = Array.isArray(inner) && layout.isFlat;
        addLines(inner, isLevel ? indent : `${indent}${" ".repeat(layout.step)}`, lines, layout);
      }
    }
  else addScalar(value, indent, "", lines);
};

const isFilled = (value: unknown): value is object =>
  typeof value === "object" && value !== null && Object.keys(value).length > 0;

const addScalar = (value: unknown, indent: string, name: string, lines: string[]): void => {
  // Texts that a YAML literal block (`|`) can't hold exactly are written on one line, in quotes.
  if (typeof value !== "string" || !/^[^\s].*\n/.test(value) || /\n\n$/.test(value) || control.test(value)) {
    lines.push(`${indent}${name}${formatScalar(value)}`);
    return;
  }
  lines.push(`${indent}${name}|${value.endsWith("\n") ? "" : "-"}`);
  for (const line of value.replace(/\n$/, "").split("\n")) lines.push(line === "" ? "" : `${indent}  ${line}`);
};

export const formatYamlFlow = (value: unknown): string => {
  if (Array.isArray(value)) return `[${value.map(formatYamlFlow).join(", ")}]`;
  if (!isMap(value)) return formatScalar(value);
  return `{${Object.entries(value)
    .map(([key, inner]) => `${formatYamlFlowKey(key)}${formatYamlFlow(inner)}`)
    .join(", ")}}`;
};

/** Returns a key in braces, with the colon after it. */
export const formatYamlFlowKey = (key: string): string => {
  const name = formatKey(key);
  return `${name.length > longestKey ? "? " : ""}${name}: `;
};

const formatScalar = (value: unknown): string => {
  if (typeof value === "string") return needsQuotes(value) ? quoteText(value) : value;
  if (Array.isArray(value)) return "[]";
  if (isMap(value)) return "{}";
  // A number with an exponent is a text in YAML 1.1 if it has no dot.
  return (exactJson.stringify(value) ?? "null").replace(/^(-?\d)e/, "$1.0e");
};

/** Reports whether YAML 1.1 or 1.2 would read a plain text as something else, or whether it is hard to read. */
export const needsQuotes = (text: string): boolean =>
  !/^[\w/][\w./@-]*(:[\w./@-]+)*$/.test(text) || word.test(text) || number.test(text);

/** Returns a text in quotes, on one line, without characters that YAML takes for a line break or forbids. */
const quoteText = (text: string): string =>
  /["\\]/.test(text) && !/['\n\t]/.test(text) && !control.test(text)
    ? `'${text}'`
    : escapeControls(JSON.stringify(text.toWellFormed()));

/** Escapes the characters that need it in double quotes, and that JSON leaves as they are. */
export const escapeControls = (text: string): string =>
  text.replace(controls, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);

const names = new Map<string, string>();
const mostNames = 5000;

const formatKey = (key: string): string => {
  let name = names.get(key);
  if (name === undefined) {
    name = formatScalar(key);
    if (names.size >= mostNames) names.clear();
    names.set(key, name);
  }
  return name;
};

/** The most characters of a key that needs no question mark before it; the limit of YAML is 1024. */
export const longestKey = 1000;

const word = /^(y|n|yes|no|on|off|true|false|null)$/i;
/** Matches integers, floats, sexagesimals and times. kubectl ignores underscores, also in `0_x1f`. */
const number = /^(\d[\d_.,:+eEtTzZ-]*|0_*[xob].*|_.*|e-?\d+)$/i;

/** Matches a character that a literal block can't hold: YAML forbids it, or takes it for the end of a line. */
const control = /(?![\n\t])[\p{Cc}\p{Cs}\u2028\u2029\ufeff\ufffe\uffff]/u;
const controls = /[\u007f-\u009f\u2028\u2029\ufeff\ufffe\uffff]/g;
