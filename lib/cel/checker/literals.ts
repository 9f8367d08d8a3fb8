import type { Environment } from "../environment.ts";
import { type Expression, type Issue, listParts } from "../parser/syntax.ts";
import type { Type } from "../types.ts";
import * as types from "../types.ts";
import { createNoSuchOverloadError, EvaluationError } from "../values.ts";

/** The types of expressions. */
type Types = ReadonlyMap<Expression, Type>;

/**
 * Finds literals that upstream refuses in an expression that is otherwise valid: lists and maps whose values have
 * several types, and texts that are no valid duration, timestamp, regular expression or format. A list of arguments for
 * `format` may have values of several types.
 */
export const findInvalidLiterals = (expression: Expression, typesOf: Types, environment: Environment): Issue[] => {
  const mismatches: Issue[] = [];
  const refused: Issue[] = [];
  const visit = (part: Expression, isFormatted: boolean): void => {
    const isCall = part.kind === "call";
    if (!isFormatted) mismatches.push(...findTypeIssues(part, typesOf));
    for (const inner of listParts(part)) visit(inner, isFormatted || (isCall && part.function === "format"));
    if (isCall) refused.push(...findInvalidArguments(part, typesOf, environment));
  };
  visit(expression, false);
  // Upstream compares all types first. The order of issues matters if they are in the same place.
  return [...mismatches, ...refused];
};

const findTypeIssues = (expression: Expression, typesOf: Types): Issue[] => {
  // Upstream stops at the first mismatch of a list, but not of a map.
  if (expression.kind === "list") return findMismatches(expression.elements, typesOf).slice(0, 1);
  if (expression.kind !== "map") return [];
  const keys = expression.entries.map(({ key }) => ({ value: key, isOptional: false }));
  return [...findMismatches(keys, typesOf), ...findMismatches(expression.entries, typesOf)];
};

/** Finds the values whose type differs from the first value's type. */
const findMismatches = (
  elements: readonly { readonly value: Expression; readonly isOptional: boolean }[],
  typesOf: Types,
): Issue[] => {
  const found = elements.map(({ value, isOptional }) => {
    const type = typesOf.get(value) ?? types.dyn;
    // An element `?x` counts with the type T if x is an optional(T): T is the only parameter of that type. If x has the
    // type dyn, which has no parameters and on which upstream panics, the element counts as dyn.
    return isOptional ? (type.parameters[0] ?? type) : type;
  });
  const expected = found[0] as Type;
  return elements.flatMap(({ value: { offset } }, index) => {
    const type = found[index] as Type;
    return types.isSameType(expected, type) ? [] : [{ offset, message: formatMismatch(expected, type) }];
  });
};

export const formatMismatch = (expected: Type, found: Type): string =>
  `expected type '${types.formatType(expected)}' but found '${types.formatType(found)}'`;

type Call = Extract<Expression, { kind: "call" }>;

/** Functions that are called with their literal argument, to find out whether they refuse it. */
const checkedFunctions = ["duration", "timestamp", "matches"];

/** Finds literal arguments that a function refuses: a wrong format, duration, timestamp or regular expression. */
const findInvalidArguments = (call: Call, typesOf: Types, { functions }: Environment): Issue[] => {
  const { function: name, target, arguments: args } = call;
  const declaration = functions.get(name);
  const [first] = args;
  // Only `format` has `findIssue`. In `"%s".format([1])`, the format is the target, and the list is the argument.
  if (
    declaration?.findIssue &&
    target?.kind === "literal" &&
    typeof target.value === "string" &&
    first?.kind === "list"
  ) {
    const elements = first.elements.map(({ value }) => value);
    const issue = declaration.findIssue(target.value, elements, typesOf);
    return issue ? [{ offset: (issue.expression ?? call).offset, message: issue.message }] : [];
  }
  if (first?.kind !== "literal" || !checkedFunctions.includes(name)) return [];
  const type = typesOf.get(first) ?? types.dyn;
  const overload = declaration?.overloads.find(({ parameters: [wanted] }) => wanted && types.isSameType(wanted, type));
  const evaluate = declaration?.evaluate ?? overload?.evaluate;
  try {
    // The argument `null` passes the check of types, but no overload accepts it.
    if (!evaluate) throw createNoSuchOverloadError();
    // Upstream takes the first argument as the pattern, even in `matches(text, pattern)`.
    if (name === "matches") evaluate("", first.value);
    else evaluate(first.value);
    return [];
  } catch (thrown) {
    if (!(thrown instanceof EvaluationError)) throw thrown;
    return [{ offset: first.offset, message: `invalid ${name} argument` }];
  }
};
