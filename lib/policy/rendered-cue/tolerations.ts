import type { Toleration } from "kubernetes-types/core/v1.d.ts";
import type { OverrideTemplate } from "../types.ts";
import {
  inputs,
  insertion,
  listed,
  listOrEmpty,
  literal,
  literals,
  operation,
  orElse,
  patchesIf,
  podSpec,
  script,
} from "./cue-text.ts";

const path = `"\\(place)/tolerations"`;

export const renderedTolerations = ({ operation: act, tolerations: given = [] }: OverrideTemplate): string => {
  const parts = act === "add" ? addition(given) : act === "remove" ? removal(given) : replacement(given);
  return script(inputs, [podSpec, listOrEmpty("existing", "podSpec.tolerations"), ...parts]);
};

const whole = operation("add", path, "wanted", "if len(existing) == 0");

const addition = (given: readonly Toleration[]) => [
  `wanted: ${literals(given)}`,
  patchesIf("podSpec", listed([whole, insertion(path, "existing", given, "wanted")])),
];

const removal = (given: readonly Toleration[]) => [
  `// by their key, or by key and value
meant: ${literals(given.flatMap(meant))}
gone: [for index, toleration in existing if (_meant & {of: toleration, by: meant}).out {index}]
${meantDefinition}`,
  patchesIf(
    "podSpec",
    listed([
      operation(
        "remove",
        `${path.slice(0, -1)}/\\(index)"`,
        undefined,
        "for index in list.Sort(gone, list.Descending)",
      ),
    ]),
  ),
];

const step = (
  toleration: Toleration,
  index: number,
  given: readonly Toleration[],
) => `_step${index + 1}: _replacement & {
	before: ${index === 0 ? "existing" : `_step${index}.after`}
	by: wanted[${index}]
	meant: ${literal(meant(toleration))}
	others: ${literal(given.filter((_, other) => other !== index))}
}`;

const replacement = (given: readonly Toleration[]) => [
  `wanted: ${literals(given)}`,
  `// each in turn replaces those of its key, or of its key and value, or is put in front where there are none\n${given.map(step).join("\n")}`,
  `${meantDefinition}
_replacement: {
	before: [...]
	by: {...}
	meant: [...]
	// stand for themselves
	others: [...]
	hits: [for toleration in before {!list.Contains(others, toleration) && (_meant & {of: toleration, by: meant}).out}]
	after: [
		if list.Contains(hits, true) {[for index, toleration in before {[if hits[index] {by}, toleration][0]}]},
		if list.Contains(before, by) {before},
		[by] + before,
	][0]
}`,
  patchesIf("podSpec", listed([whole, operation("add", path, `_step${given.length}.after`, "if len(existing) > 0")])),
];

/** Returns the key, or key and value, of the tolerations that one means; Exists means all values of its key. */
const meant = ({ key, operator = "", value }: Toleration): object[] => {
  if (typeof key !== "string") return [];
  if (operator === "Exists") return [{ key }];
  return ["", "Equal"].includes(operator) && typeof value === "string" ? [{ key, value }] : [];
};

const meantDefinition = `_meant: {
	of: _
	by: [...]
	its: {key: ${orElse("of.key", "null")}}
	out: list.Contains(by, its) || list.Contains(by, {its, value: ${orElse("of.value", "null")}})
}`;
