import type { Value } from "../values.ts";

/**
 * A parsed expression, in which macros are replaced. `offset` is the index in the text at which it begins, in code
 * points. One expression can be a part of several others, because some macros use an argument twice.
 */
export type Expression = { readonly offset: number } & (
  | { readonly kind: "literal"; readonly value: Value }
  | { readonly kind: "identifier"; readonly name: string }
  /** The expression `operand.field`; with `isTest`, the macro `has(operand.field)`. */
  | { readonly kind: "select"; readonly operand: Expression; readonly field: string; readonly isTest: boolean }
  /** A call of a function, or of an operator by upstream's name, such as `_+_`, `_&&_`, `_[_]` and `_?._`. */
  | {
      readonly kind: "call";
      readonly function: string;
      readonly target: Expression | undefined;
      readonly arguments: readonly Expression[];
    }
  | { readonly kind: "list"; readonly elements: readonly ListElement[] }
  | { readonly kind: "map"; readonly entries: readonly MapEntry[] }
  | { readonly kind: "struct"; readonly name: string; readonly fields: readonly StructField[] }
  | ({ readonly kind: "comprehension" } & Comprehension)
);

/** An element of a list. An optional element, as in `[?x]`, is left out if its value is an empty optional. */
interface ListElement {
  readonly value: Expression;
  readonly isOptional: boolean;
}

interface MapEntry extends ListElement {
  readonly key: Expression;
}

/** A field of a message, as in `Type{name: value}`. Like an element of a list, it has a value and can be optional. */
interface StructField extends ListElement {
  readonly offset: number;
  readonly name: string;
}

/** A loop. It replaces macros such as `all`. */
export interface Comprehension {
  /** The name of a list's element or a map's key; with `secondVariable`, of a list's index or a map's key. */
  readonly variable: string;
  readonly secondVariable?: string | undefined;
  readonly range: Expression;
  /** The name of the value that the loop computes. */
  readonly accumulator: string;
  readonly initial: Expression;
  /** The loop ends when this is false. */
  readonly condition: Expression;
  readonly step: Expression;
  readonly result: Expression;
}

export const createCall = (
  offset: number,
  name: string,
  args: readonly Expression[],
  target?: Expression,
): Expression => ({ offset, kind: "call", function: name, target, arguments: args });

export const createLiteral = (offset: number, value: Value): Expression => ({ offset, kind: "literal", value });

/** Lists the direct parts of an expression. */
export const listParts = (expression: Expression): readonly Expression[] => {
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

/** An error that was found in the text of an expression. */
export interface Issue {
  /** The index in the text, in code points; negative if the error concerns no place in the text. */
  readonly offset: number;
  readonly message: string;
}

/** The error that is thrown for an issue. */
export class IssueError extends Error implements Issue {
  readonly offset: number;
  constructor(message: string, offset: number) {
    super(message);
    this.offset = offset;
  }
}

/** Returns a name without the leading dot that makes it global. */
export const removeDot = (name: string): string => (name.startsWith(".") ? name.slice(1) : name);
