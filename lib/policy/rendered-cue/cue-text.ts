import { isSame } from "../../json.ts";
import type { ValueReference } from "../types.ts";
import { type PathStep, parseReferencePath } from "../values/paths.ts";

const cuePackages = ["encoding/json", "list", "math", "math/bits", "regexp", "strconv", "strings"];

/** Joins parts of CUE to a script. Adds the imports that the parts need, and the declarations of the inputs. */
export const renderCueScript = (inputs: readonly string[], parts: readonly string[]): string => {
  const body = parts.filter((part) => part !== "").join("\n\n");
  const imports = cuePackages.filter((path) => new RegExp(`\\b${path.replace(/.*\//, "")}\\.[A-Z]`).test(body));
  const head = imports.length === 0 ? "" : `import (\n${imports.map((path) => `\t"${path}"\n`).join("")})\n\n`;
  const inputLines = [...new Set(inputs)].map((line) => `${line}\n`).join("");
  return `${head}data: _ @tag(data)\n${inputLines}\n${body}\n`;
};

/**
 * Renders a value as JSON that is also CUE, so that nothing in it becomes code. Lone surrogates and byte order marks
 * are replaced, because CUE doesn't accept them.
 */
export const renderCueLiteral = (value: unknown): string =>
  JSON.stringify(value, (_, member) => (typeof member === "string" ? member.toWellFormed() : member)).replaceAll(
    "\uFEFF",
    "\\ufeff",
  );

/** Renders a policy's values as a CUE list. */
export const renderValuesAsCueList = (values: readonly unknown[]): string =>
  renderCueList(values.map(renderCueLiteral));

export const renderCueList = (elements: readonly string[]): string =>
  elements.length === 0 ? "[]" : `[\n${elements.map((element) => `\t${indent(element)},\n`).join("")}]`;

const indent = (text: string): string => text.replaceAll("\n", "\n\t");

/** Words that CUE doesn't accept after a dot in a path. */
const keywords = new Set(["package", "import", "for", "in", "if", "let", "true", "false", "null"]);

export const renderCuePath = (root: string, steps: readonly PathStep[]): string =>
  steps.reduce<string>((before, step) => {
    const isPlain = typeof step === "string" && /^[A-Za-z][A-Za-z0-9]*$/.test(step) && !keywords.has(step);
    return before + (isPlain ? `.${step}` : `[${renderCueLiteral(step)}]`);
  }, root);

/** Returns a CUE expression for the value at the path `place`, or for `otherwise` if there is no such value. */
export const renderCueValueOrElse = (place: string, otherwise: string): string =>
  `[if ${place} != _|_ {${place}}, ${otherwise}][0]`;

/** Returns a CUE field: the value at the path `place`, null if there is none, or an error if its type is wrong. */
export const renderNullableCueField = (name: string, place: string, shape: "{...}" | "[...]"): string =>
  `${name}: (null | ${shape}) & ${renderCueValueOrElse(place, "null")}`;

/** Renders a patch operation. `path` and `value` are CUE; `clauses` are CUE conditions or loops around it. */
export const renderCuePatchOperation = (op: "add" | "remove", path: string, value?: string, clauses = ""): string =>
  `${clauses && `${clauses} `}{op: "${op}", path: ${path}${value === undefined ? "" : `, value: ${value}`}}`;

/** Where a script finds the value of a reference. */
interface ReferenceLocation {
  /** The declaration at the script's start that reads the data with the value, such as `object: data.object`. */
  input: string;
  /** The path of the value in the declared field, such as `object.a`. */
  place: string;
}

const responseParts = ["body", "header", "trailer"];

/**
 * Returns the CUE path of a reference's value, and the input that it needs. A condition compares the values of two
 * references, `dataRef` and `valueRef`, which may read different objects or HTTP answers. So that their inputs have
 * different names, the input's name for a `dataRef` has the suffix `_d`, as in `otherObject_d`.
 */
export const locateReferenceInCue = ({ from, path }: ValueReference, suffix: "" | "_d" = ""): ReferenceLocation => {
  const steps = parseReferencePath(path);
  if (from === "current") return { input: "object: data.object", place: renderCuePath("object", steps) };
  if (from === "old") return { input: "oldObject: data.oldObject", place: renderCuePath("oldObject", steps) };
  const name = `${from === "http" ? "http" : "otherObject"}${suffix}`;
  const isInBody = from === "http" && !responseParts.includes(String(steps[0]));
  return {
    input: `${name}: data.extraParams.${name}`,
    place: renderCuePath(name, isInBody ? ["body", ...steps] : steps),
  };
};

/**
 * Returns a patch operation that prepends the terms that a list lacks. An empty list is left to the caller's operation
 * that sets a whole list. `path` is the list's path as a CUE text, with its quotes; `termsField` has all terms.
 */
export const renderPrependMissingAsCue = (
  path: string,
  list: string,
  terms: readonly unknown[],
  termsField: string,
): string => {
  const distinct = terms.filter((term, index) => !terms.slice(0, index).some((earlier) => isSame(term, earlier)));
  const from = distinct.length === terms.length ? termsField : renderCueLiteral(distinct);
  const clauses = `if len(${list}) > 0 for term in ${from} if !list.Contains(${list}, term)`;
  // The step `/0` is put before the closing quote of the path: a new term becomes the first element.
  return renderCuePatchOperation("add", `${path.slice(0, -1)}/0"`, "term", clauses);
};

/** The inputs of a CUE script that changes pods: the object and its kind. */
export const podScriptCueInputs = ["object: data.object", "kind: object.kind"];

/** CUE that defines `place` (the path of the pod spec) and `podSpec`. The object's kind decides, in any API group. */
export const podSpecCueDefinition = `// the path of the pod spec; other kinds have none
templated: ["ReplicationController", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job"]
place: [
	if kind == "Pod" {"/spec"},
	if list.Contains(templated, kind) {"/spec/template/spec"},
	if kind == "CronJob" {"/spec/jobTemplate/spec/template/spec"},
	"",
][0]
podSpec: (null | {...}) & [
	if place == "/spec" if object.spec != _|_ {object.spec},
	if place == "/spec/template/spec" if object.spec.template.spec != _|_ {object.spec.template.spec},
	if kind == "CronJob" if object.spec.jobTemplate.spec.template.spec != _|_ {object.spec.jobTemplate.spec.template.spec},
	null,
][0]`;

/** Returns CUE that defines the first container and these fields of its resources, such as limits; null if absent. */
export const renderFirstContainerAsCue = (...fields: string[]): string =>
  [
    "// of the first container",
    renderNullableCueField("containers", "podSpec.containers", "[...]"),
    renderNullableCueField("container", "containers[0]", "{...}"),
    renderNullableCueField("resources", "container.resources", "{...}"),
    ...fields.map((field) => renderNullableCueField(field, `resources.${field}`, "{...}")),
  ].join("\n");

/** Renders the JSON pointer of a pod spec's field as a CUE text. The CUE field `place` is the path of the pod spec. */
export const renderPodTemplatePointerAsCue = (...steps: string[]): string => `"\\(place)/${steps.join("/")}"`;

export const renderAddMissingMapOperation = (name: string, path: string): string =>
  renderCuePatchOperation("add", path, "{}", `if ${name} == null`);

/** Renders the output of a script: its list of patch operations, which is empty if the CUE field `needed` is null. */
export const renderCuePatchesOutput = (needed: string, operations: string): string =>
  `unFlattenPatches: [if ${needed} != null {${operations}}]\npatches: list.FlattenN(unFlattenPatches, 1)`;

export const renderListOrEmptyAsCue = (name: string, place: string): string =>
  `${name}: [...] & [if ${place} != _|_ if ${place} != null {${place}}, []][0]`;
