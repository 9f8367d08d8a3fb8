import { type Comprehension, createCall, createLiteral, type Expression, IssueError } from "./syntax.ts";

/** A macro: the parser replaces its calls by other expressions. */
export interface Macro {
  readonly name: string;
  readonly isMember: boolean;
  readonly arity: number;
  /** Returns the expression that replaces a call, or throws an IssueError. `target` is `a` in `a.macro(b)`. */
  expand(offset: number, args: readonly Expression[], target: Expression | undefined): Expression;
}

const createName = (offset: number, name: string): Expression => ({ offset, kind: "identifier", name });

const createList = (offset: number, ...values: readonly Expression[]): Expression => ({
  offset,
  kind: "list",
  elements: values.map((value) => ({ value, isOptional: false })),
});

const requireName = (expression: Expression, message: string): string => {
  if (expression.kind === "identifier") return expression.name;
  throw new IssueError(message, expression.offset);
};

/** A loop. By default, it visits all elements (no `condition`, no `filter`), and its result is the accumulator. */
type Loop = Pick<Comprehension, "initial" | "step"> &
  Partial<Pick<Comprehension, "condition" | "result">> & { readonly filter?: Expression | undefined };

/** The parts of a macro's call from which a loop is created. */
interface LoopParts {
  readonly offset: number;
  /** The name of the loop's accumulator. */
  readonly accumulator: Expression;
  readonly lastArgument: Expression;
  /** The loop's variable. Of two variables, it is the first, for the key or the index; the other isn't needed here. */
  readonly variable: Expression;
}

/** The name of the accumulator in older versions of cel-go. A loop's variable must not have it. */
const reservedName = "__result__";

/**
 * Declares a macro that becomes a loop. Its first arguments are variables; `message` is the error if one is no name.
 * With `hasFilter`, a filter follows them.
 */
const declareLoop = (
  name: string,
  variableCount: 1 | 2,
  createLoop: (parts: LoopParts) => Loop,
  { message = "argument must be a simple name", hasFilter = false }: { message?: string; hasFilter?: boolean } = {},
): Macro => ({
  name,
  isMember: true,
  arity: variableCount + (hasFilter ? 2 : 1),
  expand(offset, args, range: Expression) {
    const variables = args.slice(0, variableCount);
    const [variable, secondVariable] = variables.map((argument) => requireName(argument, message)) as [string, string?];
    if (variable === secondVariable)
      throw new IssueError(`duplicate variable name: ${variable}`, (variables[1] as Expression).offset);
    const reserved = variables.find((argument) => requireName(argument, message) === reservedName);
    if (reserved) throw new IssueError("iteration variable overwrites accumulator variable", reserved.offset);

    const accumulatorName = "@result";
    const accumulator = createName(offset, accumulatorName);
    const [first, lastArgument] = [args[0], args.at(-1)] as [Expression, Expression];
    const loop = createLoop({ offset, accumulator, lastArgument, variable: first });
    const filter = hasFilter ? args[variableCount] : loop.filter;
    return {
      offset,
      kind: "comprehension",
      variable,
      secondVariable,
      range,
      accumulator: accumulatorName,
      initial: loop.initial,
      condition: loop.condition ?? createLiteral(offset, true),
      step: filter ? createCall(offset, "_?_:_", [filter, loop.step, accumulator]) : loop.step,
      result: loop.result ?? accumulator,
    };
  },
});

const createAll = ({ offset, accumulator, lastArgument }: LoopParts): Loop => ({
  initial: createLiteral(offset, true),
  condition: createCall(offset, "@not_strictly_false", [accumulator]),
  step: createCall(offset, "_&&_", [accumulator, lastArgument]),
});

const createExists = ({ offset, accumulator, lastArgument }: LoopParts): Loop => ({
  initial: createLiteral(offset, false),
  condition: createCall(offset, "@not_strictly_false", [createCall(offset, "!_", [accumulator])]),
  step: createCall(offset, "_||_", [accumulator, lastArgument]),
});

const createExistsOne = ({ offset, accumulator, lastArgument }: LoopParts): Loop => ({
  initial: createLiteral(offset, 0),
  filter: lastArgument,
  step: createCall(offset, "_+_", [accumulator, createLiteral(offset, 1)]),
  result: createCall(offset, "_==_", [accumulator, createLiteral(offset, 1)]),
});

const createMap = ({ offset, accumulator, lastArgument }: LoopParts): Loop => ({
  initial: createList(offset),
  step: createCall(offset, "_+_", [accumulator, createList(offset, lastArgument)]),
});

/** Creates the loop of `filter`: it maps each element that the last argument accepts to itself. */
const createFilter = (parts: LoopParts): Loop => ({
  ...createMap({ ...parts, lastArgument: parts.variable }),
  filter: parts.lastArgument,
});

/** Adds to a map: with two expressions in `added`, a key and its value; with one, all entries of another map. */
const createInsertion = ({ offset, accumulator }: LoopParts, added: readonly Expression[]): Loop => ({
  initial: { offset, kind: "map", entries: [] },
  step: createCall(offset, "cel.@mapInsert", [accumulator, ...added]),
});

/** Creates an expression that evaluates `result`, in which `name` stands for `value`. It is a loop without elements. */
const createBinding = (offset: number, name: string, value: Expression, result: Expression): Expression => ({
  offset,
  kind: "comprehension",
  variable: "#unused",
  range: createList(offset),
  accumulator: name,
  initial: value,
  condition: createLiteral(offset, false),
  step: createName(offset, name),
  result,
});

/** Declares `optMap` or `optFlatMap`. In the second argument, the variable is the value of the optional. */
const declareOptionalMap = (name: string, isFlat: boolean): Macro => ({
  name,
  isMember: true,
  arity: 2,
  expand(offset, [variable, result]: readonly [Expression, Expression], target: Expression) {
    const accumulator = requireName(variable, `${name}() variable name must be a simple identifier`);
    const mapped = createBinding(offset, accumulator, createCall(offset, "value", [], target), result);
    return createCall(offset, "_?_:_", [
      createCall(offset, "hasValue", [], target),
      isFlat ? mapped : createCall(offset, "optional.of", [mapped]),
      createCall(offset, "optional.none", []),
    ]);
  },
});

const message = "argument is not an identifier";
const mapWithoutFilter = declareLoop("map", 1, createMap, { message });

/** The macros of upstream's standard library. `existsOne` with one variable isn't in it. */
export const standardMacros: readonly Macro[] = [
  {
    name: "has",
    isMember: false,
    arity: 1,
    expand(offset, [argument]: readonly [Expression]) {
      if (argument.kind === "select") return { ...argument, offset, isTest: true };
      throw new IssueError("invalid argument to has() macro", argument.offset);
    },
  },
  declareLoop("all", 1, createAll),
  declareLoop("exists", 1, createExists),
  declareLoop("exists_one", 1, createExistsOne),
  mapWithoutFilter,
  declareLoop("map", 1, createMap, { message, hasFilter: true }),
  declareLoop("filter", 1, createFilter, { message }),
];

export const optionalMacros: readonly Macro[] = [
  declareOptionalMap("optMap", false),
  declareOptionalMap("optFlatMap", true),
];

/** The macros with two variables, such as map.all(key, value, key != value). */
export const twoVariableMacros: readonly Macro[] = [
  declareLoop("all", 2, createAll),
  declareLoop("exists", 2, createExists),
  declareLoop("existsOne", 2, createExistsOne),
  declareLoop("exists_one", 2, createExistsOne),
  ...[false, true].flatMap((hasFilter) => [
    declareLoop("transformList", 2, createMap, { hasFilter }),
    declareLoop("transformMap", 2, (parts) => createInsertion(parts, [parts.variable, parts.lastArgument]), {
      hasFilter,
    }),
    declareLoop("transformMapEntry", 2, (parts) => createInsertion(parts, [parts.lastArgument]), { hasFilter }),
  ]),
];

/** The kinds of expressions that `sortBy` can be called on. */
const sortable: readonly Expression["kind"][] = ["list", "select", "identifier", "comprehension", "call"];

/** Sorts a list by keys, which the macro computes from its elements. The list gets a name, to be evaluated once. */
export const sortByMacro: readonly Macro[] = [
  {
    name: "sortBy",
    isMember: true,
    arity: 2,
    expand(offset, args, target: Expression) {
      if (!sortable.includes(target.kind)) {
        const message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
        throw new IssueError(message, target.offset);
      }
      const name = "@__sortBy_input__";
      const list = createName(offset, name);
      const keys = mapWithoutFilter.expand(offset, args, list);
      return createBinding(offset, name, target, createCall(offset, "@sortByAssociatedKeys", [keys], list));
    },
  },
];
