import { escapeJsonPointerStep, unescapeJsonPointerStep } from "../../json.ts";
import type { OverrideTemplate } from "../types.ts";
import {
  locateReferenceInCue,
  renderCueList,
  renderCueLiteral,
  renderCuePatchOperation,
  renderCuePath,
  renderCueScript,
  renderNullableCueField,
} from "./cue-text.ts";

/** Renders a template of labels or annotations as CUE. There, absent `metadata`, `labels` or `annotations` are null. */
export const renderMetadataAsCue = (template: OverrideTemplate): string => {
  const { type, operation } = template;
  if (operation === "remove")
    return renderCueScript(
      ["object: data.object"],
      [renderNullableMaps(type), renderRemoval(type, getUnescapedKey(template))],
    );
  const constants = renderConstants(template);
  const { valueRef } = template;
  if (constants.length > 0 || valueRef === undefined)
    return renderCueScript(["object: data.object"], [renderNullableMaps(type), renderPatches(type, constants)]);
  const { input, place } = locateReferenceInCue(valueRef);
  return renderCueScript(
    ["object: data.object", input],
    [
      renderNullableMaps(type),
      // The first element of `[if c {x}, y]` is x if c is true, else y. Numbers are converted in lower case, because
      // CUE writes 1E+21 where Postern writes 1e+21.
      `// the referenced value, if it exists
found: [if ${place} != _|_ {${place}}]
// as a text; numbers and booleans are converted
texts: [for value in found {[if (value & string) != _|_ {value}, strings.ToLower("\\(value)")][0]}]`,
      // Without a text, nothing is added: the loop over `texts` (the third argument) also stands before the operations
      // that add `metadata` and the map of labels or annotations where these are null.
      renderPatches(
        type,
        [renderCuePatchOperation("add", renderPath(type, getUnescapedKey(template)), "text", "for text in texts")],
        "for text in texts",
      ),
    ],
  );
};

/**
 * Renders the CUE fields `metadata` and `labels` (or `annotations`, by `type`); each is null if the object lacks it.
 */
const renderNullableMaps = (type: string) =>
  [
    renderNullableCueField("metadata", "object.metadata", "{...}"),
    renderNullableCueField(type, `metadata.${type}`, "{...}"),
  ].join("\n");

/**
 * Renders the output `patches`: operations that add the maps `metadata` and `labels` (or `annotations`, by `type`) if
 * they are missing, and the given operations. `clauses` are CUE loops or conditions for the addition of the maps.
 */
const renderPatches = (type: string, operations: readonly string[], clauses = "") => {
  const renderMissing = (name: string, path: string) =>
    renderCuePatchOperation("add", `"${path}"`, "{}", `${clauses} if ${name} == null`.trim());
  return `patches: ${renderCueList([renderMissing("metadata", "/metadata"), renderMissing(type, `/metadata/${type}`), ...operations])}`;
};

const renderRemoval = (type: string, key: string) =>
  `patches: ${renderCueList([renderCuePatchOperation("remove", renderPath(type, key), undefined, `if ${renderCuePath(type, [key])} != _|_`)])}`;

/** Renders the path of a label or annotation in a patch as a CUE literal, so that nothing in its key becomes code. */
const renderPath = (type: string, key: string) => renderCueLiteral(`/metadata/${type}/${escapeJsonPointerStep(key)}`);

const getUnescapedKey = ({ path }: OverrideTemplate): string => unescapeJsonPointerStep(path ?? "");

/**
 * Renders the operations that set a label or annotation to the constant of a template, or all those in its `stringMap`.
 * As in kinitiras, the keys in a stringMap are steps of a JSON pointer, like the template's path: `~1` means a slash.
 */
const renderConstants = (template: OverrideTemplate): string[] => {
  const { string, integer, float, boolean, stringMap } = template.value ?? {};
  const scalar = string ?? integer ?? float ?? boolean;
  const members: [string, unknown][] =
    scalar === undefined
      ? Object.entries(stringMap ?? {}).map(([key, value]) => [unescapeJsonPointerStep(key), value])
      : [[getUnescapedKey(template), scalar]];
  return members.map(([key, value]) =>
    renderCuePatchOperation("add", renderPath(template.type, key), renderCueLiteral(String(value))),
  );
};
