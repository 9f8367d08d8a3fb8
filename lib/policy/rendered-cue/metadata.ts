import { escapeStep, unescapeStep } from "../../json.ts";
import type { OverrideTemplate } from "../types.ts";
import { listed, literal, nullable, operation, placeOf, script, selector } from "./cue-text.ts";

export const renderedMetadata = (template: OverrideTemplate): string => {
  const { type, operation: act } = template;
  if (act === "remove") return script(["object: data.object"], [present(type), removal(type, keyOf(template))]);

  const given = constants(template);
  const { valueRef } = template;
  if (given.length > 0 || valueRef === undefined)
    return script(["object: data.object"], [present(type), patches(type, given)]);
  const { input, place } = placeOf(valueRef);
  return script(
    ["object: data.object", input],
    [
      present(type),
      `// what is referred to, if it is there
found: [if ${place} != _|_ {${place}}]
// as a text, which numbers and booleans become
texts: [for value in found {[if (value & string) != _|_ {value}, strings.ToLower("\\(value)")][0]}]`,
      patches(
        type,
        [operation("add", pathOf(type, keyOf(template)), "text", "for text in texts")],
        "for text in texts",
      ),
    ],
  );
};

const present = (type: string) =>
  [nullable("metadata", "object.metadata", "{...}"), nullable(type, `metadata.${type}`, "{...}")].join("\n");

const patches = (type: string, operations: readonly string[], clauses = "") => {
  const make = (name: string, path: string) =>
    operation("add", `"${path}"`, "{}", `${clauses} if ${name} == null`.trim());
  return `patches: ${listed([make("metadata", "/metadata"), make(type, `/metadata/${type}`), ...operations])}`;
};

const removal = (type: string, key: string) =>
  `patches: ${listed([operation("remove", pathOf(type, key), undefined, `if ${selector(type, [key])} != _|_`)])}`;

/** Renders a path as a JSON literal, so that nothing in the key is code. */
const pathOf = (type: string, key: string) => literal(`/metadata/${type}/${escapeStep(key)}`);

const keyOf = ({ path }: OverrideTemplate): string => unescapeStep(path ?? "");

const constants = (template: OverrideTemplate): string[] => {
  const { string, integer, float, boolean, stringMap } = template.value ?? {};
  const scalar = string ?? integer ?? float ?? boolean;
  const members: [string, unknown][] =
    scalar === undefined
      ? Object.entries(stringMap ?? {}).map(([key, value]) => [unescapeStep(key), value])
      : [[keyOf(template), scalar]];
  return members.map(([key, value]) => operation("add", pathOf(template.type, key), literal(String(value))));
};
