import { unescapeJsonPointerStep } from "../../json.ts";
import { quoteValue } from "./texts.ts";

export type PathStep = string | number;

/**
 * Parses a reference's path. A path with a slash outside of quotes is a slash path, such as `/spec/containers/0/name`;
 * `~1` and `~0` stand for `/` and `~`. Any other path is a dotted path, such as `metadata.labels["a.b"]` or
 * `spec.containers[0]`.
 */
export const parseReferencePath = (text: unknown): PathStep[] => {
  if (typeof text !== "string" || text === "") throw new Error("path must be a path such as /spec/replicas");
  if (text.length > maximumLength) throw new Error(`path must not be longer than ${maximumLength} characters`);
  return hasSlash(text) ? parseSlashPath(text) : parseDottedPath(text);
};

const maximumLength = 4096;

const hasSlash = (text: string) => text.startsWith("/") || text.replaceAll(quotedText, "").includes("/");

/** Parses a path such as `/spec/containers/0`. */
const parseSlashPath = (text: string): PathStep[] =>
  text
    .replace(/^\/+/, "")
    // The lookbehind keeps the time linear.
    .replace(/(?<!\/)\/+$/, "")
    .split("/")
    .map((step) => {
      if (step === "") throw new Error(`path ${quoteValue(text)} has an empty step`);
      return /^\d+$/.test(step) ? Number(step) : unescapeJsonPointerStep(step);
    });

const quotedText = /"(?:[^"\\]|\\.)*"/g;
// A step is a name, a quoted name, an index in brackets or a quoted key in brackets. Before a name, all steps but the
// first have a dot.
const firstStep = /([^\s.[\]"]+)|("(?:[^"\\]|\\.)*")|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]/y;
const nextStep = /\.([^\s.[\]"]+)|\.("(?:[^"\\]|\\.)*")|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]/y;

/** Parses a path such as `spec.containers[0]`. */
const parseDottedPath = (text: string): PathStep[] => {
  const steps: PathStep[] = [];
  for (let at = 0; at < text.length; ) {
    const step = at === 0 ? firstStep : nextStep;
    step.lastIndex = at;
    const [matched, name, quotedName, index, quotedKey] = step.exec(text) ?? [];
    if (matched === undefined)
      throw new Error(`path ${quoteValue(text)} can't be read at ${quoteValue(text.slice(at))}`);
    if (name !== undefined && /^\d+$/.test(name))
      throw new Error(`path ${quoteValue(text)} has an index without brackets; write [${name}]`);
    steps.push(name ?? (index === undefined ? unquoteKey(text, quotedName ?? quotedKey) : Number(index)));
    at += matched.length;
  }
  return steps;
};

const unquoteKey = (text: string, key = ""): string => {
  try {
    return String(JSON.parse(key));
  } catch {
    throw new Error(`path ${quoteValue(text)} has a key that is no JSON string: ${quoteValue(key)}`);
  }
};
