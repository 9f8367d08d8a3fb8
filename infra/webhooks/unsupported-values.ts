// This file finds values in the patches of MutatingAdmissionPolicies that API servers of some minor versions can't
// convert from CEL to JSON.
import { optionalMacros, sortByMacro, standardMacros, twoVariableMacros } from "#lib/cel/parser/macros.ts";
import { parse } from "#lib/cel/parser/parser.ts";
import { type Expression, listParts, removeDot } from "#lib/cel/parser/syntax.ts";
import type { MutatingAdmissionPolicySpec } from "#lib/kubernetes/admissionregistration/v1.ts";
import { parseMinor } from "#lib/since.ts";

/**
 * From this minor version on, API servers convert an `Object{}` in a list or a map to JSON. Earlier ones panic: cel-go
 * expects that each element is converted to a *structpb.Value, but an `Object{}` (dynamic.ObjectVal) is converted to a
 * *structpb.Struct. The patches 1.35.8 and 1.36.5 have the fix, too, but only a cluster's minor version is known.
 */
const fixedIn = "1.37";

const macros = [...standardMacros, ...optionalMacros, ...twoVariableMacros, ...sortByMacro];

/** The variables of a policy, by name. */
type Variables = ReadonlyMap<string, Expression>;

/**
 * Describes a value in a policy's patches that API servers of this minor version may not convert. Returns undefined if
 * they convert all values as the newest minor version does.
 */
export const findUnsupportedValue = (
  { mutations = [], variables = [] }: MutatingAdmissionPolicySpec,
  kubernetes: string,
): string | undefined => {
  if (parseMinor(kubernetes) >= parseMinor(fixedIn)) return undefined;
  const servers = `API servers of Kubernetes ${kubernetes}`;
  if (mutations.some(({ jsonPatch }) => jsonPatch && mayNestObject(jsonPatch.expression ?? "")))
    return `${servers} can panic if a JSON patch has an Object{} in a list or a map`;
  const parsedVariables = new Map(variables.map(({ name, expression }) => [name, parseExpression(expression)]));
  // For instance, [{"a": 1}] + [{"b": 2}] is a list of maps that is joined by +.
  return mutations.some(({ jsonPatch, applyConfiguration }) =>
    hasUnconvertedList(parseExpression((jsonPatch ?? applyConfiguration)?.expression), parsedVariables),
  )
    ? `${servers} can't convert some lists in an Object{}: those that split or findAll return, and lists of maps or of lists that are joined by +`
    : undefined;
};

/** Parses an expression. For an invalid one, returns null as a literal: an API server refuses such a policy anyway. */
const parseExpression = (text = ""): Expression => {
  const parsed = parse(text, macros);
  return "kind" in parsed ? parsed : { offset: 0, kind: "literal", value: null };
};

/** Reports whether an `Object{}` may have a list that API servers can't convert to JSON, such as that of `split()`. */
const hasUnconvertedList = (expression: Expression, variables: Variables): boolean =>
  (expression.kind === "struct" &&
    removeDot(expression.name) !== "JSONPatch" &&
    expression.fields.some(({ value }) => isUnconvertedList(value, variables))) ||
  listParts(expression).some((part) => hasUnconvertedList(part, variables));

/** The names that CEL gives to its operators `? :` and `+`. */
const [conditional, addition] = ["_?_:_", "_+_"];

/** CEL functions that return a list of the Go type []string, which API servers can't convert to a list of an object. */
const textListFunctions = ["split", "findAll"];

/**
 * Reports whether a value may be a list that API servers can't convert to JSON, because of the list's type in Go. There
 * are two such lists: the result of a function in `textListFunctions`; and a sum `a + b` in which `a` or `b` has lists
 * or maps as elements. A conditional may be such a list if one of its parts is. A variable has the value of its
 * expression.
 */
const isUnconvertedList = (value: Expression, variables: Variables): boolean => {
  if (isCall(value, conditional)) return listParts(value).some((part) => isUnconvertedList(part, variables));
  if (value.kind === "call")
    return textListFunctions.includes(value.function) || (isCall(value, addition) && hasNestedOperand(value));
  const isVariable =
    value.kind === "select" && value.operand.kind === "identifier" && removeDot(value.operand.name) === "variables";
  const variable = isVariable ? variables.get(value.field) : undefined;
  return variable !== undefined && isUnconvertedList(variable, variables);
};

/** Reports whether an operand of a sum of lists has lists or maps as elements, such as `[{"a": 1}]` or `[[1]]`. */
const hasNestedOperand = (sum: Expression): boolean =>
  listParts(sum).some(
    (operand) =>
      (isCall(operand, addition) && hasNestedOperand(operand)) ||
      (operand.kind === "list" && operand.elements.some(({ value: { kind } }) => kind === "map" || kind === "list")),
  );

/** Reports whether a value in a JSON patch may be a list or a map with an `Object{}` in it, such as `[Object{}]`. */
export const mayNestObject = (text: string): boolean => !isSafePatch(parseExpression(text));

/** Reports whether API servers can convert all patches: a value may be an `Object{}`, but no list or map with one. */
const isSafePatch = (expression: Expression): boolean => {
  if (expression.kind === "struct" && removeDot(expression.name) === "JSONPatch")
    return expression.fields.every(({ name, value }) => (name === "value" ? isSafeValue(value) : hasNoObject(value)));
  if (expression.kind === "list") return expression.elements.every(({ value }) => isSafePatch(value));
  if (isCall(expression, conditional) || isCall(expression, addition)) return listParts(expression).every(isSafePatch);
  // If the inputs of a loop have no Object{}, only the expressions in the loop can make one.
  if (expression.kind === "comprehension")
    return (
      [expression.range, expression.initial].every(hasNoObject) &&
      [expression.condition, expression.step, expression.result].every(isSafePatch)
    );
  return hasNoObject(expression);
};

/**
 * Reports whether API servers can convert the value of a patch. cel-go can't convert a CEL list or map that contains an
 * `Object{}`. An `Object{}` converts its fields in its own way, so it is safe, whatever its fields contain.
 */
const isSafeValue = (value: Expression): boolean => {
  if (value.kind === "struct") return true;
  return isCall(value, conditional) ? listParts(value).every(isSafeValue) : hasNoObject(value);
};

const hasNoObject = (expression: Expression): boolean =>
  expression.kind !== "struct" && listParts(expression).every(hasNoObject);

const isCall = (expression: Expression, name: string): boolean =>
  expression.kind === "call" && expression.function === name;
