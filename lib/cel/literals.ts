import type { Environment } from "./environment.ts";
import type { Expression, Issue } from "./syntax.ts";
import type { Type } from "./types.ts";
import * as types from "./types.ts";
import { createNoSuchOverloadError, EvaluationError } from "./values.ts";

/**
 * Finds literals that upstream refuses when an expression is otherwise valid: lists and maps of several types, and texts
 * that are no duration, timestamp, regular expression or format.
 */
export const findInvalidLiterals = (expression: Expression, typesById: Types, environment: Environment): Issue[] => {
  const visited: Visited[] = [];
  visit(expression, false, visited);
  return [
    ...findMixedLists(visited, typesById),
    ...findMixedMaps(visited, typesById),
    ...findInvalidArguments("duration", visited, typesById, environment),
    ...findInvalidArguments("timestamp", visited, typesById, environment),
    ...findInvalidArguments("matches", visited, typesById, environment),
    ...findInvalidFormats(visited, typesById, environment),
  ];
};

/** The types of expressions by their ids. */
type Types = ReadonlyMap<number, Type>;

interface Visited {
  readonly expression: Expression;
  /** Whether it is part of a call of `format`, whose list may have elements of several types. */
  readonly isFormatted: boolean;
}

/** Lists an expression and its parts, the parts first. */
const visit = (expression: Expression, isFormatted: boolean, visited: Visited[]): void => {
  const isInFormat = isFormatted || (expression.kind === "call" && expression.function === "format");
  for (const child of listChildren(expression)) visit(child, isInFormat, visited);
  visited.push({ expression, isFormatted });
};

const listChildren = (expression: Expression): readonly Expression[] => {
  switch (expression.kind) {
    case "literal":
    case "identifier":
      return [];
    case "select":
      return [expression.operand];
    case "call":
      return expression.target ? [expression.target, ...expression.arguments] : expression.arguments;
    case "list":
      return expression.elements.map(({ value }) => value);
    case "map":
      return expression.entries.flatMap(({ key, value }) => [key, value]);
    case "struct":
      return expression.fields.map(({ value }) => value);
    case "comprehension":
      return [expression.range, expression.initial, expression.condition, expression.step, expression.result];
  }
};

const findMixedLists = (visited: readonly Visited[], typesById: Types): Issue[] =>
  visited.flatMap(({ expression, isFormatted }) => {
    if (expression.kind !== "list" || isFormatted) return [];
    return findMismatches(expression.elements, typesById).slice(0, 1);
  });

const findMixedMaps = (visited: readonly Visited[], typesById: Types): Issue[] =>
  visited.flatMap(({ expression, isFormatted }) => {
    if (expression.kind !== "map" || isFormatted) return [];
    const keys = expression.entries.map(({ key }) => ({ value: key, isOptional: false }));
    return [...findMismatches(keys, typesById), ...findMismatches(expression.entries, typesById)];
  });

/** Finds the values whose type differs from that of the first one. */
const findMismatches = (
  elements: readonly { readonly value: Expression; readonly isOptional: boolean }[],
  typesById: Types,
): Issue[] => {
  const found = elements.map(({ value, isOptional }) => {
    const type = typesById.get(value.id) ?? types.dyn;
    // Upstream panics on an element `?x` of type dyn.
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

/** Calls a function with each literal that is its first argument. */
const findInvalidArguments = (
  name: string,
  visited: readonly Visited[],
  typesById: Types,
  environment: Environment,
): Issue[] =>
  visited.flatMap(({ expression }) => {
    if (expression.kind !== "call" || expression.function !== name) return [];
    const argument = expression.arguments[0];
    if (argument?.kind !== "literal") return [];
    const type = typesById.get(argument.id) ?? types.dyn;
    const declaration = environment.functions.get(name);
    const overload = declaration?.overloads.find(({ parameters: [first] }) => first && types.isSameType(first, type));
    const evaluate = declaration?.evaluate ?? overload?.evaluate;
    try {
      // Null fits the static types, but no function takes it.
      if (!evaluate) throw createNoSuchOverloadError();
      // Also in `matches(text, pattern)` upstream takes the first argument for the pattern.
      if (name === "matches") evaluate("", argument.value);
      else evaluate(argument.value);
      return [];
    } catch (thrown) {
      if (!(thrown instanceof EvaluationError)) throw thrown;
      return [{ offset: argument.offset, message: `invalid ${name} argument` }];
    }
  });

/** Checks the texts of `"…".format([…])` with their arguments. */
const findInvalidFormats = (visited: readonly Visited[], typesById: Types, { functions }: Environment): Issue[] =>
  visited.flatMap(({ expression }) => {
    if (expression.kind !== "call") return [];
    const { target } = expression;
    const findIssue = functions.get(expression.function)?.findIssue;
    const [list] = expression.arguments;
    if (!findIssue || target?.kind !== "literal" || typeof target.value !== "string" || list?.kind !== "list")
      return [];
    const args = list.elements.map(({ value }) => value);
    const issue = findIssue(target.value, args, typesById);
    return issue ? [{ offset: (issue.expression ?? expression).offset, message: issue.message }] : [];
  });
