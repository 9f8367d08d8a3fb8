import type { Expression } from "./syntax.ts";
import type { Value } from "./values.ts";

/** A call that is replaced by another expression when a text is parsed. */
export interface Macro {
  readonly name: string;
  readonly isMember: boolean;
  readonly arity: number;
  /** Returns what the call is replaced by, or throws a MacroError. A member has a target. */
  expand(context: MacroContext, target: Expression | undefined, args: readonly Expression[]): Expression;
}

/** An error in the arguments of a macro. */
export class MacroError extends Error {
  readonly offset: number;
  constructor(message: string, { offset }: Expression) {
    super(message);
    this.offset = offset;
  }
}

type Comprehension = Extract<Expression, { kind: "comprehension" }>;

/** Creates the expressions of one macro. All begin where the macro's arguments do. */
export class MacroContext {
  readonly #offset: number;
  readonly #createId: () => number;
  constructor(offset: number, createId: () => number) {
    this.#offset = offset;
    this.#createId = createId;
  }

  createLiteral(value: Value): Expression {
    return { ...this.#begin(), kind: "literal", value };
  }

  createIdentifier(name: string): Expression {
    return { ...this.#begin(), kind: "identifier", name };
  }

  createTest(operand: Expression, field: string): Expression {
    return { ...this.#begin(), kind: "select", operand, field, isTest: true };
  }

  createCall(name: string, ...args: readonly Expression[]): Expression {
    return { ...this.#begin(), kind: "call", function: name, target: undefined, arguments: args };
  }

  createMemberCall(name: string, target: Expression, ...args: readonly Expression[]): Expression {
    return { ...this.#begin(), kind: "call", function: name, target, arguments: args };
  }

  createList(...values: readonly Expression[]): Expression {
    return { ...this.#begin(), kind: "list", elements: values.map((value) => ({ value, isOptional: false })) };
  }

  createMap(): Expression {
    return { ...this.#begin(), kind: "map", entries: [] };
  }

  createComprehension(parts: Omit<Comprehension, "id" | "offset" | "kind">): Expression {
    return { ...this.#begin(), kind: "comprehension", ...parts };
  }

  /** Returns an expression with other ids, at the same place. Ids are given in upstream's order. */
  copy(expression: Expression): Expression {
    const start = { id: this.#createId(), offset: expression.offset };
    switch (expression.kind) {
      case "select":
        return { ...expression, ...start, operand: this.copy(expression.operand) };
      case "call": {
        const args = expression.arguments.map((argument) => this.copy(argument));
        return { ...expression, ...start, target: expression.target && this.copy(expression.target), arguments: args };
      }
      case "list": {
        const elements = expression.elements.map((element) => ({ ...element, value: this.copy(element.value) }));
        return { ...expression, ...start, elements };
      }
      case "map": {
        const entries = expression.entries.map((entry) => ({
          ...entry,
          id: this.#createId(),
          key: this.copy(entry.key),
          value: this.copy(entry.value),
        }));
        return { ...expression, ...start, entries };
      }
      case "struct": {
        const fields = expression.fields.map((field) => ({
          ...field,
          ...this.#begin(),
          value: this.copy(field.value),
        }));
        return { ...expression, ...start, fields };
      }
      case "comprehension":
        return {
          ...expression,
          ...start,
          range: this.copy(expression.range),
          initial: this.copy(expression.initial),
          condition: this.copy(expression.condition),
          step: this.copy(expression.step),
          result: this.copy(expression.result),
        };
      default:
        return { ...expression, ...start };
    }
  }

  #begin(): { readonly id: number; readonly offset: number } {
    return { id: this.#createId(), offset: this.#offset };
  }
}

const accumulator = "@result";
const createAccumulator = (context: MacroContext): Expression => context.createIdentifier(accumulator);

const requireName = (expression: Expression, message: string): string => {
  if (expression.kind === "identifier") return expression.name;
  throw new MacroError(message, expression);
};

/** Returns the names of a loop's variables. */
const requireVariables = (variables: readonly Expression[], message: string): string[] => {
  const names = variables.map((variable) => requireName(variable, message));
  for (const [index, variable] of variables.entries()) {
    if (names.indexOf(names[index] as string) < index)
      throw new MacroError(`duplicate variable name: ${names[index]}`, variable);
  }
  for (const [index, variable] of variables.entries())
    if (names[index] === "__result__")
      throw new MacroError("iteration variable overwrites accumulator variable", variable);
  return names;
};

/** What a loop computes. Its expressions are created in upstream's order, by which they have their ids. */
type Loop = Pick<Comprehension, "initial" | "condition" | "step" | "result">;
type CreateLoop = (context: MacroContext, parts: readonly Expression[], variables: readonly Expression[]) => Loop;

/** Declares a macro with one or two variables, and with other arguments that `createLoop` gets as parts. */
const declareLoop = (
  name: string,
  variableCount: 1 | 2,
  partCount: number,
  createLoop: CreateLoop,
  message = "argument must be a simple name",
): Macro => ({
  name,
  isMember: true,
  arity: variableCount + partCount,
  expand(context, target: Expression, args) {
    const variables = args.slice(0, variableCount);
    const [variable, secondVariable] = requireVariables(variables, message) as [string, string?];
    const loop = createLoop(context, args.slice(variableCount), variables);
    return context.createComprehension({ range: target, variable, secondVariable, accumulator, ...loop });
  },
});

const createAll: CreateLoop = (context, [predicate]) => ({
  initial: context.createLiteral(true),
  condition: context.createCall("@not_strictly_false", createAccumulator(context)),
  step: context.createCall("_&&_", createAccumulator(context), predicate as Expression),
  result: createAccumulator(context),
});

const createExists: CreateLoop = (context, [predicate]) => ({
  initial: context.createLiteral(false),
  condition: context.createCall("@not_strictly_false", context.createCall("!_", createAccumulator(context))),
  step: context.createCall("_||_", createAccumulator(context), predicate as Expression),
  result: createAccumulator(context),
});

const createExistsOne: CreateLoop = (context, [predicate]) => {
  const [initial, condition] = [context.createLiteral(0), context.createLiteral(true)];
  const sum = context.createCall("_+_", createAccumulator(context), context.createLiteral(1));
  return {
    initial,
    condition,
    step: context.createCall("_?_:_", predicate as Expression, sum, createAccumulator(context)),
    result: context.createCall("_==_", createAccumulator(context), context.createLiteral(1)),
  };
};

const createAppend = (context: MacroContext, element: Expression): Expression =>
  context.createCall("_+_", createAccumulator(context), context.createList(element));

/** Creates a step that changes the value only for elements for which the filter is true. */
const createStep = (context: MacroContext, filter: Expression | undefined, step: Expression): Expression =>
  filter ? context.createCall("_?_:_", filter, step, createAccumulator(context)) : step;

const createListLoop = (context: MacroContext, filter: Expression | undefined, element: Expression): Loop => ({
  initial: context.createList(),
  condition: context.createLiteral(true),
  step: createStep(context, filter, createAppend(context, element)),
  result: createAccumulator(context),
});

const createMap: CreateLoop = (context, parts) =>
  createListLoop(context, parts.length > 1 ? parts[0] : undefined, parts.at(-1) as Expression);

const createFilter: CreateLoop = (context, [filter], [variable]) =>
  createListLoop(context, filter, variable as Expression);

const createTransformList: CreateLoop = (context, parts) => {
  const append = createAppend(context, parts.at(-1) as Expression);
  const step = createStep(context, parts.length > 1 ? parts[0] : undefined, append);
  return {
    initial: context.createList(),
    condition: context.createLiteral(true),
    step,
    result: createAccumulator(context),
  };
};

/** Creates a loop that adds an entry with the loop's key, or with `isEntry` all entries of another map. */
const createTransformMap =
  (isEntry: boolean): CreateLoop =>
  (context, parts, variables) => {
    const map = createAccumulator(context);
    const key = isEntry ? [] : [context.createIdentifier(requireName(variables[0] as Expression, ""))];
    const insert = context.createCall("cel.@mapInsert", map, ...key, parts.at(-1) as Expression);
    const step = createStep(context, parts.length > 1 ? parts[0] : undefined, insert);
    return {
      initial: context.createMap(),
      condition: context.createLiteral(true),
      step,
      result: createAccumulator(context),
    };
  };

const notIdentifier = "argument is not an identifier";
const map = declareLoop("map", 1, 1, createMap, notIdentifier);

/** Declares `optMap` or `optFlatMap`, whose second argument sees the value of an optional as a variable. */
const declareOptionalMap = (name: string, isFlat: boolean): Macro => ({
  name,
  isMember: true,
  arity: 2,
  expand(context, target: Expression, [variable, result]: readonly [Expression, Expression]) {
    const accumulator = requireName(variable, `${name}() variable name must be a simple identifier`);
    const hasValue = context.createMemberCall("hasValue", target);
    const mapped = context.createComprehension({
      range: context.createList(),
      variable: "#unused",
      secondVariable: undefined,
      accumulator,
      initial: context.createMemberCall("value", context.copy(target)),
      condition: context.createLiteral(false),
      step: context.createIdentifier(accumulator),
      result,
    });
    const optional = isFlat ? mapped : context.createCall("optional.of", mapped);
    return context.createCall("_?_:_", hasValue, optional, context.createCall("optional.none"));
  },
});

/** The macros of upstream's standard library. `existsOne` with one variable isn't in it. */
export const standardMacros: readonly Macro[] = [
  {
    name: "has",
    isMember: false,
    arity: 1,
    expand(context, _target, [argument]: readonly [Expression]) {
      if (argument.kind === "select") return context.createTest(argument.operand, argument.field);
      throw new MacroError("invalid argument to has() macro", argument);
    },
  },
  declareLoop("all", 1, 1, createAll),
  declareLoop("exists", 1, 1, createExists),
  declareLoop("exists_one", 1, 1, createExistsOne),
  map,
  declareLoop("map", 1, 2, createMap, notIdentifier),
  declareLoop("filter", 1, 1, createFilter, notIdentifier),
];

export const optionalMacros: readonly Macro[] = [
  declareOptionalMap("optMap", false),
  declareOptionalMap("optFlatMap", true),
];

export const twoVariableMacros: readonly Macro[] = [
  declareLoop("all", 2, 1, createAll),
  declareLoop("exists", 2, 1, createExists),
  declareLoop("existsOne", 2, 1, createExistsOne),
  declareLoop("exists_one", 2, 1, createExistsOne),
  ...([1, 2] as const).flatMap((partCount) => [
    declareLoop("transformList", 2, partCount, createTransformList),
    declareLoop("transformMap", 2, partCount, createTransformMap(false)),
    declareLoop("transformMapEntry", 2, partCount, createTransformMap(true)),
  ]),
];

/** The kinds of expressions that `sortBy` can be called on. */
const sortable: readonly Expression["kind"][] = ["list", "select", "identifier", "comprehension", "call"];

/** Sorts a list by the values that its elements are mapped to. The list has a name, so it is evaluated once. */
export const sortByMacro: readonly Macro[] = [
  {
    name: "sortBy",
    isMember: true,
    arity: 2,
    expand(context, target: Expression, args) {
      const list = context.createIdentifier("@__sortBy_input__");
      if (!sortable.includes(target.kind)) {
        const message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
        throw new MacroError(message, target);
      }
      const keys = map.expand(context, context.copy(list), args);
      const result = context.createMemberCall("@sortByAssociatedKeys", context.copy(list), keys);
      return context.createComprehension({
        range: context.createList(),
        variable: "#unused",
        secondVariable: undefined,
        accumulator: "@__sortBy_input__",
        initial: target,
        condition: context.createLiteral(false),
        step: list,
        result,
      });
    },
  },
];
