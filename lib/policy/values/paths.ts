import { unescapeStep } from "../../json.ts";
import { shown } from "./texts.ts";

export type Step = string | number;

/**
 * Parses a reference's path. With a slash outside of quotes it is a slash path, in which digits are an index and `~1`
 * and `~0` stand for `/` and `~`; else a dotted path with `[0]` and `["key"]`.
 */
export const parsePath = (text: unknown): Step[] => {
  if (typeof text !== "string" || text === "") throw new Error("path must be a path such as /spec/replicas");
  if (text.length > longest) throw new Error(`path must not be longer than ${longest} characters`);
  return hasSlash(text) ? slashed(text) : dotted(text);
};

const longest = 4096;

const hasSlash = (text: string) => text.startsWith("/") || text.replaceAll(quoted, "").includes("/");

const slashed = (text: string): Step[] =>
  text
    .replace(/^\/+/, "")
    .replace(/(?<!\/)\/+$/, "")
    .split("/")
    .map((step) => {
      if (step === "") throw new Error(`path ${shown(text)} has an empty step`);
      return /^\d+$/.test(step) ? Number(step) : unescapeStep(step);
    });

const quoted = /"(?:[^"\\]|\\.)*"/g;
const first = /([^\s.[\]"]+)|("(?:[^"\\]|\\.)*")|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]/y;
const further = /\.([^\s.[\]"]+)|\.("(?:[^"\\]|\\.)*")|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]/y;

const dotted = (text: string): Step[] => {
  const steps: Step[] = [];
  for (let at = 0; at < text.length; ) {
    const step = at === 0 ? first : further;
    step.lastIndex = at;
    const [matched, name, quotedName, index, quotedKey] = step.exec(text) ?? [];
    if (matched === undefined) throw new Error(`path ${shown(text)} can't be read at ${shown(text.slice(at))}`);
    if (name !== undefined && /^\d+$/.test(name))
      throw new Error(`path ${shown(text)} has an index without brackets; write [${name}]`);
    steps.push(name ?? (index === undefined ? unquoted(text, quotedName ?? quotedKey) : Number(index)));
    at += matched.length;
  }
  return steps;
};

const unquoted = (text: string, key = ""): string => {
  try {
    return String(JSON.parse(key));
  } catch {
    throw new Error(`path ${shown(text)} has a key that is no JSON string: ${shown(key)}`);
  }
};
