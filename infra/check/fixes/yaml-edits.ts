import {
  type Document,
  isCollection,
  isMap,
  isNode,
  isScalar,
  isSeq,
  type Pair,
  type YAMLMap,
  type YAMLSeq,
} from "yaml";
import { exactJson, writeIntegerExactly } from "#lib/exact-json.ts";
import { formatYamlFlow, formatYamlFlowKey, formatYamlLines, type YamlIndentation } from "../../diff/yaml-lines.ts";
import type { FieldPath } from "../../manifests/manifests.ts";

/** A YAML or JSON document of a file, and the object in it that edits change. */
interface EditableDocument {
  text: string;
  document: Document.Parsed;
  /** The path of the edited object in the YAML document: not empty for an item of a List. */
  place: FieldPath;
  isJson: boolean;
  layout: YamlIndentation;
}

/** A change of the value that the path `steps` leads to; `add` to a list inserts before the item at that index. */
export interface YamlEdit {
  steps: readonly string[];
  op: "add" | "replace" | "remove";
  value?: unknown;
}

/** Returns the text with only this edit; undefined if more of the text would have to be written anew. */
export const editYamlText = (target: EditableDocument, { steps, op, value }: YamlEdit): string | undefined => {
  const { document, place, text } = target;
  const last = steps.at(-1) ?? "";
  const holder: unknown = document.getIn(toKeys(document, place, steps.slice(0, -1)), /* keepScalar */ true);
  if (isSeq(holder)) return editList(target, holder, Number(last), op, value);
  if (!isMap(holder)) return undefined;
  const pair = holder.items.find(({ key }) => isScalar(key) && String(key.value) === last);
  if (op === "remove") return pair === undefined ? text : deletePair(target, holder, pair);
  return pair === undefined ? addPair(target, holder, last, value) : replaceValue(target, holder, pair, value);
};

/** Returns the path of what `steps` lead to below `place`, as keys for `getIn`: a step into a list becomes a number. */
const toKeys = (document: Document.Parsed, place: FieldPath, steps: readonly string[]): FieldPath => {
  const keys = [...place];
  for (const step of steps) keys.push(isSeq(document.getIn(keys, /* keepScalar */ true)) ? Number(step) : step);
  return keys;
};

/** Returns where the text of a node ends, without the comments and empty lines that follow it. */
const findEnd = (node: unknown, text: string): number | undefined => {
  if (isCollection(node) && node.flow !== true) {
    if (!isMap(node)) return findEnd(node.items.at(-1), text);
    const last = node.items.at(-1);
    return findEnd(last?.value, text) ?? findEnd(last?.key, text);
  }
  const [start, end] = getRange(node) ?? [];
  if (start === undefined || end === undefined || (isScalar(node) && node.source === "")) return undefined;
  return start + text.slice(start, end).trimEnd().length;
};

const getRange = (node: unknown): readonly number[] | undefined =>
  isNode(node) ? (node.range ?? undefined) : undefined;
const getStart = (node: unknown): number | undefined => getRange(node)?.[0];

const findLineStart = (text: string, at: number) => text.lastIndexOf("\n", at - 1) + 1;
const findLineEnd = (text: string, at: number) =>
  text.indexOf("\n", at) === -1 ? text.length : text.indexOf("\n", at);
const getColumn = (text: string, at: number) => at - findLineStart(text, at);
const replaceRange = (text: string, from: number, to: number, inserted: string) =>
  text.slice(0, from) + inserted + text.slice(to);
const indentLines = (lines: readonly string[], column: number) =>
  lines.map((line) => (line === "" ? "" : " ".repeat(column) + line)).join("\n");

/** Returns a value as JSON or in YAML's flow style; JSON goes on several lines if `indent` is given. */
const formatInFlow = ({ isJson, layout }: EditableDocument, value: unknown, indent?: string): string => {
  if (!isJson) return formatYamlFlow(value);
  if (indent === undefined) return exactJson.stringify(value);
  // `exactJson` can't indent. `writeIntegerExactly` makes it exact: large integers are written without rounding.
  const lines = JSON.stringify(value, writeIntegerExactly, indent.includes("\t") ? "\t" : layout.step);
  return lines.replaceAll("\n", `\n${indent}`);
};

/**
 * Appends a member to a YAML map or list in flow style, after the last member; on a line of its own if the last member
 * has one. `prefix` is the new member's key with a colon; empty in a list.
 */
const appendInFlow = (
  target: EditableDocument,
  last: { start: number; end: number },
  prefix: string,
  value: unknown,
): string => {
  const { text } = target;
  const before = text.slice(findLineStart(text, last.start), last.start);
  const indent = before.trim() === "" ? before : undefined;
  const space = indent === undefined ? " " : `\n${indent}`;
  return replaceRange(text, last.end, last.end, `,${space}${prefix}${formatInFlow(target, value, indent)}`);
};

/**
 * Returns YAML text in which a value replaces the old one: on the lines below its key, which is at `keyColumn`. A
 * comment after the old value stays beside the key.
 */
const writeBelow = (
  { text, layout }: EditableDocument,
  old: { start: number; end: number },
  keyColumn: number,
  value: unknown,
): string => {
  const isNotIndented = Array.isArray(value) && layout.hasUnindentedLists;
  const lines = indentLines(formatYamlLines(value, layout), keyColumn + (isNotIndented ? 0 : layout.step));
  const lineEnd = findLineEnd(text, old.end);
  const [textToKey, comment] = [text.slice(0, old.start).trimEnd(), text.slice(old.end, lineEnd)];
  return `${textToKey}${comment}\n${lines}${text.slice(lineEnd)}`;
};

/** Returns the text with a new member in a map; undefined if more of the text would have to be written anew. */
const addPair = (target: EditableDocument, map: YAMLMap, key: string, value: unknown): string | undefined => {
  const { text, layout, isJson } = target;
  const last = map.items.at(-1);
  const [end, first] = [findEnd(last?.value, text) ?? findEnd(last?.key, text), getStart(map.items[0]?.key)];
  if (last === undefined || end === undefined || first === undefined) {
    const [from, to] = getRange(map) ?? [];
    if (map.flow !== true || from === undefined || to === undefined) return undefined;
    return replaceRange(text, from, to, formatInFlow(target, Object.fromEntries([[key, value]])));
  }
  if (map.flow === true) {
    const prefix = isJson ? `${JSON.stringify(key)}: ` : formatYamlFlowKey(key);
    return appendInFlow(target, { start: getStart(last.key) ?? end, end }, prefix, value);
  }
  const lines = formatYamlLines(Object.fromEntries([[key, value]]), layout);
  const at = findLineEnd(text, end);
  return replaceRange(text, at, at, `\n${indentLines(lines, getColumn(text, first))}`);
};

/** Returns the text with another value of a member; undefined if more of the text would have to be written anew. */
const replaceValue = (
  target: EditableDocument,
  map: YAMLMap,
  { key, value: old }: Pair,
  value: unknown,
): string | undefined => {
  const { text } = target;
  const [from, to] = getRange(old) ?? [];
  const start = getStart(key);
  if (from === undefined || to === undefined || start === undefined) return undefined;
  if (isCollection(old) && old.flow !== true) return undefined;
  if (isScalar(old) && /^BLOCK/.test(old.type ?? "")) return undefined;
  const isContainer = typeof value === "object" && value !== null && Object.keys(value).length > 0;
  if (map.flow === true || !isContainer) {
    const space = from === to && text[from - 1] === ":" ? " " : "";
    return replaceRange(text, from, to, space + formatInFlow(target, value));
  }
  return writeBelow(target, { start: from, end: to }, getColumn(text, start), value);
};

/** Removes whole lines; returns undefined if other text precedes `start` on its line. */
const deleteLines = (text: string, start: number, end: number): string | undefined => {
  const from = findLineStart(text, start);
  const isAlone = text.slice(from, start).trim() === "";
  return isAlone ? replaceRange(text, from, Math.min(findLineEnd(text, end) + 1, text.length), "") : undefined;
};

const deletePair = ({ text }: EditableDocument, map: YAMLMap, { key, value }: Pair): string | undefined => {
  const [start, end] = [getStart(key), findEnd(value, text) ?? findEnd(key, text)];
  if (map.flow === true || map.items.length === 1 || start === undefined || end === undefined) return undefined;
  return deleteLines(text, start, end);
};

/** Returns the position in the text of the dash before an item of a list in block style. */
const findDash = (text: string, item: unknown): number | undefined => {
  const start = getStart(item);
  const found = start === undefined ? -1 : text.lastIndexOf("-", start - 1);
  return found < 0 || text.slice(found + 1, start).trim() !== "" ? undefined : found;
};

/**
 * Returns the text with an edit of a list; undefined if more of the text would have to be written anew: in flow style,
 * for all edits but appending; in block style, for removing the only item and for replacing a map, list or block text.
 */
const editList = (
  target: EditableDocument,
  list: YAMLSeq,
  index: number,
  op: YamlEdit["op"],
  value: unknown,
): string | undefined => {
  const { text, layout } = target;
  const item: unknown = list.items[index];
  if (list.flow === true) {
    const last: unknown = list.items.at(-1);
    const [end, start] = [findEnd(last, text), getStart(last)];
    if (op !== "add" || index < list.items.length) return undefined;
    if (end === undefined || start === undefined) return fillEmptyList(target, list, [value]);
    return appendInFlow(target, { start, end }, /* prefix */ "", value);
  }
  const dash = findDash(text, item ?? list.items[0]);
  if (dash === undefined) return undefined;
  const end = findEnd(item ?? list.items.at(-1), text);
  if (op === "remove") return list.items.length === 1 || end === undefined ? undefined : deleteLines(text, dash, end);
  if (op === "replace") {
    const [from, to] = getRange(item) ?? [];
    const isPlain = isScalar(item) && !/^BLOCK/.test(item.type ?? "");
    return isPlain && from !== undefined && to !== undefined
      ? replaceRange(text, from, to, formatYamlFlow(value))
      : undefined;
  }
  const lines = indentLines(formatYamlLines([value], layout), getColumn(text, dash));
  if (item !== undefined) return replaceRange(text, findLineStart(text, dash), findLineStart(text, dash), `${lines}\n`);
  if (end === undefined) return undefined;
  return replaceRange(text, findLineEnd(text, end), findLineEnd(text, end), `\n${lines}`);
};

/** Writes values into an empty list of a YAML document; `[]` after a key becomes a list in block style. */
const fillEmptyList = (target: EditableDocument, list: YAMLSeq, value: unknown[]): string | undefined => {
  const { text, isJson } = target;
  const [from, to] = getRange(list) ?? [];
  if (from === undefined || to === undefined) return undefined;
  const start = findLineStart(text, from);
  // Before the list is for instance `  ports: ` or `- ports: `.
  const [, before = "", key] = /^([\s-]*)([^\s{[,][^{[,]*:)[ \t]*$/.exec(text.slice(start, from)) ?? [];
  if (isJson || key === undefined) return replaceRange(text, from, to, formatInFlow(target, value));
  return writeBelow(target, { start: from, end: to }, before.length, value);
};
