import type { Value } from "./values.ts";

/**
 * An expression as it was parsed, with its macros replaced. `id` is a number from 1 that no other expression of the
 * text has. `offset` is where it begins in the text, in code points.
 */
export type Expression = { readonly id: number; readonly offset: number } & (
  | { readonly kind: "literal"; readonly value: Value }
  | { readonly kind: "identifier"; readonly name: string }
  /** `operand.field`, or with `isTest` the macro `has(operand.field)`. */
  | { readonly kind: "select"; readonly operand: Expression; readonly field: string; readonly isTest: boolean }
  /** A function by its name, or an operator by upstream's name for it, such as `_+_`, `_&&_`, `_[_]` and `_?._`. */
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

/** An element of a list; an optional one, `[?x]`, is left out if its optional value is empty. */
interface ListElement {
  readonly value: Expression;
  readonly isOptional: boolean;
}

interface MapEntry {
  readonly id: number;
  readonly key: Expression;
  readonly value: Expression;
  readonly isOptional: boolean;
}

interface StructField {
  readonly id: number;
  readonly offset: number;
  readonly name: string;
  readonly value: Expression;
  readonly isOptional: boolean;
}

/** A loop, which macros such as `all` are replaced by. */
interface Comprehension {
  /** The name of an element of a list or of a key of a map; with `secondVariable`, of an index or a key. */
  readonly variable: string;
  readonly secondVariable: string | undefined;
  readonly range: Expression;
  /** The name of the value that the loop computes. */
  readonly accumulator: string;
  readonly initial: Expression;
  /** The loop ends when this is false. */
  readonly condition: Expression;
  readonly step: Expression;
  readonly result: Expression;
}

/** An error that was found in the text of an expression. */
export interface Issue {
  /** Where it is, in code points from the start of the text; negative if it has no place there. */
  readonly offset: number;
  readonly message: string;
}
