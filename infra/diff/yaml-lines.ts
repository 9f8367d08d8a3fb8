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
      const name = formatKey(key);
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
  if (typeof value !== "string" || !/^[^\s][^\r]*\n/.test(value) || /\n\n$/.test(value)) {
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
    .map(([key, inner]) => `${quoteText(key)}: ${formatYamlFlow(inner)}`)
    .join(", ")}}`;
};

const formatScalar = (value: unknown): string => {
  if (typeof value === "string") return quoteText(value);
  return Array.isArray(value) ? "[]" : isMap(value) ? "{}" : (exactJson.stringify(value) ?? "null");
};

/** Quotes a text that YAML would read as another type or that is hard to read. */
const quoteText = (text: string): string =>
  /^[\w/][\w./@-]*(:[\w./@-]+)*$/.test(text) && !word.test(text) && !number.test(text) ? text : JSON.stringify(text);

const names = new Map<string, string>();
const mostNames = 5000;

const formatKey = (key: string): string => {
  let name = names.get(key);
  if (name === undefined) {
    name = quoteText(key);
    if (names.size >= mostNames) names.clear();
    names.set(key, name);
  }
  return name;
};

const word = /^(y|n|yes|no|on|off|true|false|null)$/i;
const number = /^(\d[\d_.,:+-]*(e[\d+-]*)?|0[xob].*|_.*|e-?\d+)$/i;
