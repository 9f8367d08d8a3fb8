import type { Toleration } from "../../kubernetes/core/v1.ts";
import type { OverrideTemplate } from "../types.ts";
import {
  podScriptCueInputs,
  podSpecCueDefinition,
  renderCueList,
  renderCueLiteral,
  renderCuePatchesOutput,
  renderCuePatchOperation,
  renderCueScript,
  renderCueValueOrElse,
  renderListOrEmptyAsCue,
  renderPodTemplatePointerAsCue,
  renderPrependMissingAsCue,
  renderValuesAsCueList,
} from "./cue-text.ts";

const tolerationsPath = renderPodTemplatePointerAsCue("tolerations");

export const renderTolerationsTemplateAsCue = ({ operation, tolerations = [] }: OverrideTemplate): string =>
  renderCueScript(podScriptCueInputs, [
    podSpecCueDefinition,
    renderListOrEmptyAsCue("existing", "podSpec.tolerations"),
    ...renderOperation(operation, tolerations),
  ]);

const renderOperation = (operation: OverrideTemplate["operation"], tolerations: readonly Toleration[]) => {
  if (operation === "add") return renderAddition(tolerations);
  return operation === "remove" ? renderRemoval(tolerations) : renderReplacement(tolerations);
};

/** A patch operation that sets the tolerations if the pod has none. */
const setAllIfNone = renderCuePatchOperation("add", tolerationsPath, "wanted", "if len(existing) == 0");

/** Renders CUE that adds those of these tolerations (CUE's `wanted`) that the pod's list (CUE's `existing`) lacks. */
const renderAddition = (tolerations: readonly Toleration[]) => [
  `wanted: ${renderValuesAsCueList(tolerations)}`,
  renderCuePatchesOutput(
    "podSpec",
    renderCueList([setAllIfNone, renderPrependMissingAsCue(tolerationsPath, "existing", tolerations, "wanted")]),
  ),
];

/**
 * Renders the removal of the tolerations that the template identifies. In the CUE, `meant` lists the keys, or keys and
 * values, that identify tolerations; `_meant` tests whether this list (`by`) has those of a toleration (`of`); and
 * `gone` has the indexes of the tolerations to remove.
 */
const renderRemoval = (tolerations: readonly Toleration[]) => [
  `// by their key, or by key and value
meant: ${renderValuesAsCueList(tolerations.flatMap(listIdentities))}
gone: [for index, toleration in existing if (_meant & {of: toleration, by: meant}).out {index}]
${identityTestDefinition}`,
  renderCuePatchesOutput(
    "podSpec",
    renderCueList([
      renderCuePatchOperation(
        "remove",
        renderPodTemplatePointerAsCue("tolerations", "\\(index)"),
        undefined,
        "for index in list.Sort(gone, list.Descending)",
      ),
    ]),
  ),
];

/**
 * Renders the CUE in which a policy's toleration `by` replaces each toleration in the list `before` with the same key
 * and value (`meant`). If the operator of `by` is Exists, the key is enough. Tolerations in `before` that equal one of
 * the policy's other tolerations (`others`) stay. If `by` replaces none, `by` is prepended.
 */
const renderStep = (
  toleration: Toleration,
  index: number,
  tolerations: readonly Toleration[],
) => `_step${index + 1}: _replacement & {
	before: ${index === 0 ? "existing" : `_step${index}.after`}
	by: wanted[${index}]
	meant: ${renderCueLiteral(listIdentities(toleration))}
	others: ${renderCueLiteral(tolerations.filter((_, otherIndex) => otherIndex !== index))}
}`;

/**
 * Renders one step for each toleration of the template (in the CUE, `by`): `by` replaces each toleration in `before`
 * that has the key and value of `by`, which `meant` lists (without the value if `by` has the operator Exists; the test
 * is `(_meant & …).out`), but none that equals another toleration of the template (`others`). `hits` has true for each
 * replaced one. If none is replaced, `by` is prepended, unless `before` has it.
 */
const renderReplacement = (tolerations: readonly Toleration[]) => [
  `wanted: ${renderValuesAsCueList(tolerations)}`,
  `// each replaces those with its key, or with its key and value; if there are none, it is prepended\n${tolerations.map(renderStep).join("\n")}`,
  `${identityTestDefinition}
_replacement: {
	before: [...]
	by: {...}
	meant: [...]
	// given tolerations that are not replaced
	others: [...]
	hits: [for toleration in before {!list.Contains(others, toleration) && (_meant & {of: toleration, by: meant}).out}]
	after: [
		if list.Contains(hits, true) {[for index, toleration in before {[if hits[index] {by}, toleration][0]}]},
		if list.Contains(before, by) {before},
		[by] + before,
	][0]
}`,
  renderCuePatchesOutput(
    "podSpec",
    renderCueList([
      setAllIfNone,
      renderCuePatchOperation("add", tolerationsPath, `_step${tolerations.length}.after`, "if len(existing) > 0"),
    ]),
  ),
];

/**
 * Returns the key and value (for the operator Exists, only the key) of the Pod's tolerations that a toleration in a
 * policy's template replaces or removes, as a list of one. The list is empty if there can't be such tolerations.
 */
const listIdentities = ({ key, operator = "", value }: Toleration): object[] => {
  if (typeof key !== "string") return [];
  if (operator === "Exists") return [{ key }];
  return ["", "Equal"].includes(operator) && typeof value === "string" ? [{ key, value }] : [];
};

/**
 * CUE (`_meant`) that tests whether a policy's list `by` has the key of a toleration `of`, as `{key: …}`, or the key
 * and value of `of`, as `{key: …, value: …}`. In CUE, `{keyOnly, value: …}` is `keyOnly` with a value.
 */
const identityTestDefinition = `_meant: {
	of: _
	by: [...]
	keyOnly: {key: ${renderCueValueOrElse("of.key", "null")}}
	out: list.Contains(by, keyOnly) || list.Contains(by, {keyOnly, value: ${renderCueValueOrElse("of.value", "null")}})
}`;
