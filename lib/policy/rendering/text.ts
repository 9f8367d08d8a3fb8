import { isSame } from "../../json.ts";
import type { Reference } from "../kinds.ts";
import { parsePath, type Step } from "../values/paths.ts";

/** The packages of CUE that renderings use. */
const packages = ["encoding/json", "list", "math", "math/bits", "regexp", "strconv", "strings"];

/** A whole script: what it imports and is given, and then its parts, those that are empty left out. */
export const script = (inputs: readonly string[], parts: readonly string[]): string => {
  const body = parts.filter((part) => part !== "").join("\n\n");
  const imports = packages.filter((path) => new RegExp(`\\b${path.replace(/.*\//, "")}\\.[A-Z]`).test(body));
  const head = imports.length === 0 ? "" : `import (\n${imports.map((path) => `\t"${path}"\n`).join("")})\n\n`;
  const given = [...new Set(inputs)].map((line) => `${line}\n`).join("");
  return `${head}data: _ @tag(data)\n${given}\n${body}\n`;
};

/** A policy's own value. JSON is CUE, in which nothing of it is code; CUE has no halves of characters, and no byte order mark. */
export const literal = (value: unknown): string =>
  JSON.stringify(value, (_, member) => (typeof member === "string" ? member.toWellFormed() : member)).replaceAll(
    "\uFEFF",
    "\\ufeff",
  );

/** The literals of a list, each in a line of its own. */
export const literals = (values: readonly unknown[]): string => listed(values.map(literal));

/** A list, each element in a line of its own. */
export const listed = (elements: readonly string[]): string =>
  elements.length === 0 ? "[]" : `[\n${elements.map((element) => `\t${indented(element)},\n`).join("")}]`;

/** What stands further right than where it was written. */
const indented = (text: string): string => text.replaceAll("\n", "\n\t");

const keywords = new Set(["package", "import", "for", "in", "if", "let", "true", "false", "null"]);

/** A path as CUE writes it. */
export const selector = (root: string, steps: readonly Step[]): string =>
  steps.reduce<string>((before, step) => {
    const isPlain = typeof step === "string" && /^[A-Za-z][A-Za-z0-9]*$/.test(step) && !keywords.has(step);
    return before + (isPlain ? `.${step}` : `[${literal(step)}]`);
  }, root);

/** What stands somewhere, or something else where nothing does. */
export const orElse = (place: string, otherwise: string): string => `[if ${place} != _|_ {${place}}, ${otherwise}][0]`;

/** A field that is null where there is no such place, and an error where there is something of another shape. */
export const nullable = (name: string, place: string, shape: "{...}" | "[...]"): string =>
  `${name}: (null | ${shape}) & ${orElse(place, "null")}`;

/** An operation of a patch. Its path and value are CUE; without a value there is none, and under conditions it may not be there. */
export const operation = (op: "add" | "remove", path: string, value?: string, clauses = ""): string =>
  `${clauses && `${clauses} `}{op: "${op}", path: ${path}${value === undefined ? "" : `, value: ${value}`}}`;

/** An input that a reference looks in, and where in it. */
interface Place {
  input: string;
  place: string;
}

const parts = ["body", "header", "trailer"];

/** Where a reference looks; what it names by itself has been fetched, apart for what a condition is about. */
export const placeOf = ({ from, path }: Reference, suffix: "" | "_d" = ""): Place => {
  const steps = parsePath(path);
  if (from === "current") return { input: "object: data.object", place: selector("object", steps) };
  if (from === "old") return { input: "oldObject: data.oldObject", place: selector("oldObject", steps) };
  const name = `${from === "http" ? "http" : "otherObject"}${suffix}`;
  const isInBody = from === "http" && !parts.includes(String(steps[0]));
  return { input: `${name}: data.extraParams.${name}`, place: selector(name, isInBody ? ["body", ...steps] : steps) };
};

/** Puts in front of a list, one after the other, those that it doesn't have. */
export const insertion = (path: string, list: string, given: readonly unknown[], name: string): string => {
  const distinct = given.filter((one, index) => !given.slice(0, index).some((other) => isSame(one, other)));
  const from = distinct.length === given.length ? name : literal(distinct);
  const clauses = `if len(${list}) > 0 for term in ${from} if !list.Contains(${list}, term)`;
  return operation("add", `${path.slice(0, -1)}/0"`, "term", clauses);
};
