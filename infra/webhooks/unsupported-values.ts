// Values of JSON patches that API servers of some minor versions can't convert.
import { optionalMacros, sortByMacro, standardMacros, twoVariableMacros } from "#lib/cel/parser/macros.ts";
import { parse } from "#lib/cel/parser/parser.ts";
import { type Expression, listParts, removeDot } from "#lib/cel/parser/syntax.ts";
import type { MutatingAdmissionPolicySpec } from "#lib/kubernetes/admissionregistration/v1.ts";
import { parseMinor } from "#lib/since.ts";

/**
 * The first minor whose patches all convert an `Object{}` in a list or a map. Before, the API server panics: cel-go's lists
 * and maps set an element of the type *structpb.Value, and dynamic.ObjectVal returns a *structpb.Struct. Patches 1.35.8 and
 * 1.36.5 fixed it, too, but of a cluster only the minor is known.
 */
const fixedIn = "1.37";

const macros = [...standardMacros, ...optionalMacros, ...twoVariableMacros, ...sortByMacro];

type Variables = ReadonlyMap<string, Expression>;

/**
 * Returns why API servers of a minor can't be relied on for the values that a policy's patches have; undefined if they convert
 * them as the newest minor does.
 */
export const findUnsupportedValue = (
  { mutations = [], variables = [] }: MutatingAdmissionPolicySpec,
  kubernetes: string,
): string | undefined => {
  if (parseMinor(kubernetes) >= parseMinor(fixedIn)) return undefined;
  const servers = `API servers of Kubernetes ${kubernetes}`;
  if (mutations.some(({ jsonPatch }) => jsonPatch && mayNestObject(jsonPatch.expression ?? "")))
    return `${servers} can panic if a JSON patch has an Object{} in a list or a map`;
  const named = new Map(variables.map(({ name, expression }) => [name, parseExpression(expression)]));
  return mutations.some(({ jsonPatch, applyConfiguration }) =>
    hasUnconvertedList(parseExpression((jsonPatch ?? applyConfiguration)?.expression), named),
  )
    ? `${servers} don't convert a list in an Object{} that split or findAll made, or one to which maps or lists were added`
    : undefined;
};

/** The expressions are valid in the minor; one that isn't has nothing that could be converted. */
const parseExpression = (text = ""): Expression => {
  const parsed = parse(text, macros);
  return "kind" in parsed ? parsed : { offset: 0, kind: "literal", value: null };
};

/** Reports whether an `Object{}` of an expression has a list, as a field, that upstream leaves as cel-go has it. */
const hasUnconvertedList = (expression: Expression, variables: Variables): boolean =>
  (expression.kind === "struct" &&
    removeDot(expression.name) !== "JSONPatch" &&
    expression.fields.some(({ value }) => isUnconvertedList(value, variables))) ||
  listParts(expression).some((part) => hasUnconvertedList(part, variables));

/** The functions whose lists are Go's lists of texts. */
const textListFunctions = ["split", "findAll"];

const isUnconvertedList = (value: Expression, variables: Variables): boolean => {
  if (isCall(value, "_?_:_")) return listParts(value).some((part) => isUnconvertedList(part, variables));
  if (value.kind === "call")
    return textListFunctions.includes(value.function) || (isCall(value, "_+_") && addsParts(value));
  const isVariable =
    value.kind === "select" && value.operand.kind === "identifier" && removeDot(value.operand.name) === "variables";
  const named = isVariable ? variables.get(value.field) : undefined;
  return named !== undefined && isUnconvertedList(named, variables);
};

/** Reports whether a sum has a list of maps or lists among its parts. */
const addsParts = (sum: Expression): boolean =>
  listParts(sum).some(
    (part) =>
      (isCall(part, "_+_") && addsParts(part)) ||
      (part.kind === "list" && part.elements.some(({ value: { kind } }) => kind === "map" || kind === "list")),
  );

/** Reports whether an operand of the patches that an expression makes may be a list or a map that has an `Object{}`. */
export const mayNestObject = (text: string): boolean => !isSafePatch(parseExpression(text));

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
