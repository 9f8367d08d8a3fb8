import { type Document, isCollection, isMap, isScalar, isSeq, type Pair, type YAMLMap, type YAMLSeq } from "yaml";
import { flowOf, type Layout, linesOf } from "../../diff/yaml-lines.ts";
import type { Path } from "../manifests/manifests.ts";

export interface EditedText {
  text: string;
  document: Document.Parsed;
  /** The path of the edited object in the document. */
  place: Path;
  isJson: boolean;
  layout: Layout;
}

/** A change at the end of `steps`; `add` to a list inserts the value before the item at that index. */
export interface YamlEdit {
  steps: readonly string[];
  op: "add" | "replace" | "remove";
  value?: unknown;
}

/** Returns the text with only this edit; undefined if more of the text would have to be written anew. */
export const editText = (target: EditedText, { steps, op, value }: YamlEdit): string | undefined => {
  const { document, place, text } = target;
  const [last = "", ...before] = steps.toReversed();
  const holder: unknown = document.getIn([...place, ...before.toReversed().map(stepFor(document, place))], true);
  if (isSeq(holder)) return inList(target, holder, Number(last), op, value);
  if (!isMap(holder)) return undefined;
  const pair = holder.items.find(({ key }) => isScalar(key) && String(key.value) === last);
  if (op === "remove") return pair === undefined ? text : withoutPair(target, holder, pair);
  return pair === undefined ? withPair(target, holder, last, value) : withValue(target, holder, pair, value);
};

/** Returns a function that turns the steps of a path, in order, into keys for `getIn`: numbers for lists. */
const stepFor = (document: Document.Parsed, place: Path) => {
  const trail = [...place];
  return (step: string): string | number => {
    const own = isSeq(document.getIn(trail, true)) ? Number(step) : step;
    trail.push(own);
    return own;
  };
};

/** Returns where the text of a node ends, without the comments and empty lines that follow it. */
const endOf = (node: unknown, text: string): number | undefined => {
  if (isCollection(node) && node.flow !== true) {
    const last: unknown = node.items.at(-1);
    if (isMap(node)) {
      const { key, value } = Object(last) as Partial<Pair>;
      return endOf(value, text) ?? endOf(key, text);
    }
    return endOf(last, text);
  }
  const [start, end] = rangeOf(node) ?? [];
  if (start === undefined || end === undefined || (isScalar(node) && node.source === "")) return undefined;
  return start + text.slice(start, end).trimEnd().length;
};

const rangeOf = (node: unknown): readonly number[] | undefined => Object(node).range ?? undefined;
const startOf = (node: unknown): number | undefined => rangeOf(node)?.[0];

const lineStart = (text: string, at: number) => text.lastIndexOf("\n", at - 1) + 1;
const lineEnd = (text: string, at: number) => (text.indexOf("\n", at) === -1 ? text.length : text.indexOf("\n", at));
const columnOf = (text: string, at: number) => at - lineStart(text, at);
const spliced = (text: string, from: number, to: number, inserted: string) =>
  text.slice(0, from) + inserted + text.slice(to);
const indented = (lines: readonly string[], column: number) =>
  lines.map((line) => (line === "" ? "" : " ".repeat(column) + line)).join("\n");

/** Prints a value in flow style; JSON goes on several lines if `indent` is given. */
const inFlow = ({ isJson, layout }: EditedText, value: unknown, indent: string | undefined): string => {
  if (!isJson) return flowOf(value);
  if (indent === undefined) return JSON.stringify(value);
  return JSON.stringify(value, null, indent.includes("\t") ? "\t" : layout.step).replaceAll("\n", `\n${indent}`);
};

/** Appends a member to a collection in flow style; on a line of its own if the last member has one. */
const appendInFlow = (target: EditedText, start: number, end: number, name: string, value: unknown): string => {
  const { text } = target;
  const before = text.slice(lineStart(text, start), start);
  const indent = before.trim() === "" ? before : undefined;
  const space = indent === undefined ? " " : `\n${indent}`;
  return spliced(text, end, end, `,${space}${name}${inFlow(target, value, indent)}`);
};

/** Writes a value on the lines below its key, which is at `column`; a comment stays beside the key. */
const writeBelow = ({ text, layout }: EditedText, from: number, to: number, column: number, value: unknown): string => {
  const isLevel = Array.isArray(value) && layout.isFlat;
  const lines = indented(linesOf(value, layout), column + (isLevel ? 0 : layout.step));
  const end = lineEnd(text, to);
  return `${text.slice(0, from).trimEnd()}${text.slice(to, end)}\n${lines}${text.slice(end)}`;
};

const withPair = (target: EditedText, map: YAMLMap, key: string, value: unknown): string | undefined => {
  const { text, layout, isJson } = target;
  const last = map.items.at(-1);
  const [end, first] = [endOf(last?.value, text) ?? endOf(last?.key, text), startOf(map.items[0]?.key)];
  if (last === undefined || end === undefined || first === undefined) {
    const [from, to] = rangeOf(map) ?? [];
    if (map.flow !== true || from === undefined || to === undefined) return undefined;
    return spliced(text, from, to, inFlow(target, Object.fromEntries([[key, value]]), undefined));
  }
  if (map.flow === true) {
    const name = isJson ? JSON.stringify(key) : flowOf(key);
    return appendInFlow(target, startOf(last.key) ?? end, end, `${name}: `, value);
  }
  const lines = linesOf(Object.fromEntries([[key, value]]), layout);
  const at = lineEnd(text, end);
  return spliced(text, at, at, `\n${indented(lines, columnOf(text, first))}`);
};

const withValue = (target: EditedText, map: YAMLMap, { key, value: old }: Pair, value: unknown): string | undefined => {
  const { text } = target;
  const [from, to] = rangeOf(old) ?? [];
  const start = startOf(key);
  if (from === undefined || to === undefined || start === undefined) return undefined;
  if (isCollection(old) && old.flow !== true) return undefined;
  if (isScalar(old) && /^BLOCK/.test(old.type ?? "")) return undefined;
  const isContainer = typeof value === "object" && value !== null && Object.keys(value).length > 0;
  if (map.flow === true || !isContainer) {
    const space = from === to && text[from - 1] === ":" ? " " : "";
    return spliced(text, from, to, space + inFlow(target, value, undefined));
  }
  return writeBelow(target, from, to, columnOf(text, start), value);
};

/** Removes whole lines; returns undefined if other text precedes `start` on its line. */
const withoutLines = (text: string, start: number, end: number): string | undefined => {
  const from = lineStart(text, start);
  const isAlone = text.slice(from, start).trim() === "";
  return isAlone ? spliced(text, from, Math.min(lineEnd(text, end) + 1, text.length), "") : undefined;
};

const withoutPair = ({ text }: EditedText, map: YAMLMap, { key, value }: Pair): string | undefined => {
  const [start, end] = [startOf(key), endOf(value, text) ?? endOf(key, text)];
  if (map.flow === true || map.items.length === 1 || start === undefined || end === undefined) return undefined;
  return withoutLines(text, start, end);
};

const dashOf = (text: string, item: unknown): number | undefined => {
  const start = startOf(item);
  const found = start === undefined ? -1 : text.lastIndexOf("-", start - 1);
  return found < 0 || text.slice(found + 1, start).trim() !== "" ? undefined : found;
};

const inList = (
  target: EditedText,
  list: YAMLSeq,
  index: number,
  op: YamlEdit["op"],
  value: unknown,
): string | undefined => {
  const { text, layout } = target;
  const item: unknown = list.items[index];
  if (list.flow === true) {
    const last: unknown = list.items.at(-1);
    const [end, start] = [endOf(last, text), startOf(last)];
    if (op !== "add" || index < list.items.length) return undefined;
    if (end === undefined || start === undefined) return emptyList(target, list, [value]);
    return appendInFlow(target, start, end, "", value);
  }
  const column = dashOf(text, item ?? list.items[0]);
  if (column === undefined) return undefined;
  const end = endOf(item ?? list.items.at(-1), text);
  if (op === "remove")
    return list.items.length === 1 || end === undefined ? undefined : withoutLines(text, column, end);
  if (op === "replace") {
    const [from, to] = rangeOf(item) ?? [];
    const isPlain = isScalar(item) && !/^BLOCK/.test(item.type ?? "");
    return isPlain && from !== undefined && to !== undefined ? spliced(text, from, to, flowOf(value)) : undefined;
  }
  const lines = indented(linesOf([value], layout), columnOf(text, column));
  if (item !== undefined) return spliced(text, lineStart(text, column), lineStart(text, column), `${lines}\n`);
  if (end === undefined) return undefined;
  return spliced(text, lineEnd(text, end), lineEnd(text, end), `\n${lines}`);
};

/** Fills an empty list; `[]` after a key becomes a list in block style. */
const emptyList = (target: EditedText, list: YAMLSeq, value: unknown[]): string | undefined => {
  const { text, isJson } = target;
  const [from, to] = rangeOf(list) ?? [];
  if (from === undefined || to === undefined) return undefined;
  const start = lineStart(text, from);
  const [, before = "", key] = /^([\s-]*)([^\s{[,][^{[,]*:)[ \t]*$/.exec(text.slice(start, from)) ?? [];
  if (isJson || key === undefined) return spliced(text, from, to, inFlow(target, value, undefined));
  return writeBelow(target, from, to, before.length, value);
};
