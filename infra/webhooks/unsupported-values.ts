// Values of JSON patches that API servers of some minor versions can't convert.
import { optionalMacros, sortByMacro, standardMacros, twoVariableMacros } from "#lib/cel/macros.ts";
import { parse } from "#lib/cel/parser.ts";
import { type Expression, listParts, removeDot } from "#lib/cel/syntax.ts";
import type { MutatingAdmissionPolicySpec } from "#lib/kubernetes/admissionregistration/v1.ts";
import { parseMinor } from "#lib/since.ts";

/**
 * The first minor whose patches all convert an `Object{}` in a list or a map. Before, the API server panics: cel-go's lists
 * and maps set an element of the type *structpb.Value, and dynamic.ObjectVal returns a *structpb.Struct. Patches 1.35.8 and
 * 1.36.5 mended it, too, but of a cluster only the minor is known.
 */
const mendedIn = "1.37";

const macros = [...standardMacros, ...optionalMacros, ...twoVariableMacros, ...sortByMacro];

/**
 * Returns why API servers of a minor can't be relied on for the values of a policy's JSON patches; undefined if it is certain
 * that they convert them as the newest minor does.
 */
export const findUnsupportedValue = (
  { mutations = [] }: MutatingAdmissionPolicySpec,
  kubernetes: string,
): string | undefined => {
  if (parseMinor(kubernetes) >= parseMinor(mendedIn)) return undefined;
  const texts = mutations.flatMap(({ jsonPatch }) => jsonPatch?.expression ?? []);
  return texts.some(mayNestObject)
    ? `API servers of Kubernetes ${kubernetes} can panic if a JSON patch has an Object{} in a list or a map`
    : undefined;
};

/** Reports whether an operand of the patches that an expression makes may be a list or a map that has an `Object{}`. */
export const mayNestObject = (text: string): boolean => {
  const expression = parse(text, macros);
  return "kind" in expression && !isSafePatch(expression);
};

/** Reports whether no operand of the patches that an expression results in has an `Object{}` in a list or a map. */
const isSafePatch = (expression: Expression): boolean => {
  if (expression.kind === "struct" && removeDot(expression.name) === "JSONPatch")
    return expression.fields.every(({ name, value }) => (name === "value" ? isSafeOperand(value) : hasNoObject(value)));
  if (expression.kind === "list") return expression.elements.every(({ value }) => isSafePatch(value));
  if (isCall(expression, "_?_:_") || isCall(expression, "_+_")) return listParts(expression).every(isSafePatch);
  // What goes into a loop has no Object, so only the step can make one, or the result of optFlatMap.
  if (expression.kind === "comprehension")
    return (
      [expression.range, expression.initial].every(hasNoObject) &&
      [expression.condition, expression.step, expression.result].every(isSafePatch)
    );
  return hasNoObject(expression);
};

/** The fields of an `Object{}` are converted without cel-go's lists and maps, whatever they have. */
const isSafeOperand = (operand: Expression): boolean => {
  if (operand.kind === "struct") return true;
  return isCall(operand, "_?_:_") ? listParts(operand).every(isSafeOperand) : hasNoObject(operand);
};

const hasNoObject = (expression: Expression): boolean =>
  expression.kind !== "struct" && listParts(expression).every(hasNoObject);

const isCall = (expression: Expression, name: string): boolean =>
  expression.kind === "call" && expression.function === name;
