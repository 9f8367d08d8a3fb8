import type { CheckedExpression } from "../checker/checker.ts";
import { type Environment, namedTypes } from "../environment.ts";
import { nameGoType } from "../go-types.ts";
import { createGrowingList, isGrowingList } from "../libraries/standard.ts";
import { formatValue } from "../libraries/value-text.ts";
import { type Expression, removeDot } from "../parser/syntax.ts";
import { createPatch, StructValue } from "../structs.ts";
import type { Type } from "../types.ts";
import * as types from "../types.ts";
import {
  CelMap,
  EvaluationError,
  isList,
  isMap,
  listEntries,
  markBuiltList,
  Optional,
  TypeValue,
  toArray,
  toMapKey,
  type Value,
} from "../values.ts";
import { type Attribute, addQualifier, buildResolver, createKeyError, hasGoType, isKey } from "./attributes.ts";
import {
  buildAlternative,
  buildCall,
  buildEquality,
  buildLogic,
  buildLoopCondition,
  buildMembership,
} from "./calls.ts";
import {
  attempt,
  type Evaluator,
  Frame,
  Interruption,
  type Result,
  requireHashable,
  type Variables,
} from "./evaluation.ts";

export { FieldObject, StructValue } from "../structs.ts";
export type { Variables } from "./evaluation.ts";

// A checked expression is compiled to functions that call each other. To evaluate it, the outermost function is called.
// The plan of an expression is that of cel-go, because costs depend on it: a path such as `a.b[c].d` is one attribute
// with qualifiers. Cel-go evaluates both arguments of a call, and charges for the call, even if one is an error. With
// three arguments or more, it stops at the first error, and charges only if this error is the last argument.

/** The cost that may still be used. If more is used, the evaluation ends with upstream's error. */
export interface Budget {
  left: number;
}

export interface Program {
  readonly type: Type;
  evaluate(variables: Variables, budget?: Budget): Outcome;
}

export type Outcome =
  | { readonly value: Value; readonly cost: number }
  | { readonly error: string; readonly cost: number };

/** The plan of a part of an expression: a constant, an attribute, or a compiled function. */
type Plan =
  | { readonly kind: "constant"; readonly value: Result }
  /** With `isTest`, the macro `has` tests whether the attribute is present. */
  | { readonly kind: "attribute"; readonly attribute: Attribute; readonly isTest: boolean }
  | { readonly kind: "code"; readonly evaluate: Evaluator };

/** Returns the function that evaluates a plan, and charges for it. */
const toEvaluator = (plan: Plan): Evaluator => {
  if (plan.kind === "code") return plan.evaluate;
  if (plan.kind === "constant") {
    const { value } = plan;
    return () => value;
  }
  const resolve = buildResolver(plan.attribute);
  // A path costs 1 in addition to its selections, a conditional attribute nothing. For the macro `has` (`isTest`),
  // upstream subtracts 1 from either cost, so it can be -1.
  const cost = Number(plan.attribute.kind === "path") - Number(plan.isTest);
  if (!plan.isTest && cost === 0) return resolve;
  return (frame) => {
    const value = resolve(frame);
    if (cost !== 0) frame.charge(cost);
    return plan.isTest && value instanceof Optional ? value.value !== undefined : value;
  };
};

/** Returns a plan's attribute. Its caller adds qualifiers: the fields or indexes that an expression selects. */
const toAttribute = (plan: Plan): Attribute =>
  plan.kind === "attribute"
    ? plan.attribute
    : // Errors name a type of Go itself only for a variable. This root is a constant or a result: it has cel-go's type.
      { kind: "path", root: toEvaluator(plan), hasGoType: false, qualifiers: [] };

/** The variables of a loop, and the scope around the loop. */
interface Scope {
  readonly outer: Scope | undefined;
  readonly names: ReadonlyMap<string, Evaluator>;
}

const conversions = new Set("bool bytes double duration dyn int string timestamp type uint".split(" "));

const noVariables: Variables = { find: () => undefined };

const constant = (value: Result): Plan => ({ kind: "constant", value });
const planCode = (evaluate: Evaluator): Plan => ({ kind: "code", evaluate });

/** Evaluates a part that consists of constants, when the expression is compiled. */
const fold = (evaluate: Evaluator): Plan => {
  const result = run(evaluate, new Frame(noVariables, Number.POSITIVE_INFINITY, 0));
  if (result instanceof Interruption) throw new EvaluationError(result.message);
  return constant(result);
};

const hasNamelessPart = ({ name, parameters }: Type): boolean => name === "" || parameters.some(hasNamelessPart);

/** Compiles an expression. Throws an EvaluationError if upstream can't compile it. */
export const compile = (checked: CheckedExpression, environment: Environment): Program => {
  // Upstream gives a type without a name to unknown fields of JSON patches.
  for (const type of checked.types.values())
    if (hasNamelessPart(type))
      throw new EvaluationError("unexpected compilation error: missing type conversion to proto: ");
  const planner = new Planner(checked, environment);
  const evaluate = toEvaluator(planner.plan(checked.expression, undefined));
  return {
    type: checked.type,
    evaluate: (variables, budget = { left: Number.POSITIVE_INFINITY }) => {
      const frame = new Frame(variables, budget.left, planner.slots, environment.hasNewerOptionals);
      const result = run(evaluate, frame);
      const { cost } = frame;
      budget.left -= cost;
      return result instanceof Error ? { error: result.message, cost } : { value: result, cost };
    },
  };
};

/** Calls the function of an expression. Returns its result, or the Interruption that ended it. */
const run = (evaluate: Evaluator, frame: Frame): Result | Interruption => {
  try {
    return evaluate(frame);
  } catch (error) {
    if (error instanceof Interruption) return error;
    // Upstream's computation of some costs fails if arguments have other types than expected.
    if (error instanceof TypeError && error.message.startsWith("interface conversion"))
      return new Interruption(`internal error: ${error.message}`);
    throw error;
  }
};

/** Makes the plans of an expression and its parts. */
class Planner {
  slots = 0;
  readonly #checked: CheckedExpression;
  readonly #environment: Environment;

  constructor(checked: CheckedExpression, environment: Environment) {
    this.#checked = checked;
    this.#environment = environment;
  }

  plan(expression: Expression, scope: Scope | undefined): Plan {
    switch (expression.kind) {
      case "literal":
        return constant(expression.value);
      case "identifier":
        return this.#planName(expression, expression.name, scope);
      case "select":
        return this.#planSelect(expression, scope);
      case "call":
        return this.#planCall(expression, scope);
      case "list":
        return this.#planList(expression, scope);
      case "map":
        return this.#planMap(expression, scope);
      case "struct":
        return this.#planStruct(expression, scope);
      case "comprehension":
        return this.#planLoop(expression, scope);
    }
  }

  #planName(expression: Expression, written: string, scope: Scope | undefined): Plan {
    const name = this.#checked.references.get(expression)?.name ?? written;
    const type = this.#checked.types.get(expression);
    if (type?.kind === "type") {
      const named = namedTypes.get(name);
      if (named) return constant(new TypeValue(named));
      throw new EvaluationError(`reference to undefined type: ${name}`);
    }
    let inner = scope;
    while (inner && !inner.names.has(name)) inner = inner.outer;
    const local = inner?.names.get(name);
    // The variables that a policy declares are results of expressions, which upstream stores as values of CEL.
    const isComposed = type?.name === "kubernetes.variables";
    return {
      kind: "attribute",
      attribute: { kind: "path", root: local ?? findVariable(name), hasGoType: !local && !isComposed, qualifiers: [] },
      isTest: false,
    };
  }

  #planSelect(expression: Expression & { kind: "select" }, scope: Scope | undefined): Plan {
    const { operand, field: key, isTest } = expression;
    if (this.#checked.references.has(expression)) return this.#planName(expression, key, scope);
    const attribute = toAttribute(this.plan(operand, scope));
    const inMessage = /^Object(\.|$)/.test(this.#checked.types.get(operand)?.name ?? "");
    addQualifier(attribute, { key, isTest, inMessage, isOptional: false });
    return { kind: "attribute", attribute, isTest };
  }

  #planCall(expression: Expression & { kind: "call" }, scope: Scope | undefined): Plan {
    const { target } = expression;
    const { name = expression.function, overloads = [] } = this.#checked.references.get(expression) ?? {};
    // The target can be a part of the function's name, such as `sets` in `sets.contains(a, b)`.
    const isMember = target && !name.endsWith(`.${expression.function}`);
    const written = isMember ? [target, ...expression.arguments] : expression.arguments;
    const args = written.map((argument) => this.plan(argument, scope));
    const [first, second, third] = args as [Plan, Plan, Plan];
    const { hasTypedObjects } = this.#environment;
    switch (name) {
      case "_&&_":
        return planCode(buildLogic(args.map(toEvaluator), false));
      case "_||_":
        return planCode(buildLogic(args.map(toEvaluator), true));
      case "_?_:_":
        return {
          kind: "attribute",
          attribute: {
            kind: "conditional",
            condition: toEvaluator(first),
            whenTrue: toAttribute(second),
            whenFalse: toAttribute(third),
          },
          isTest: false,
        };
      case "_==_":
        return planCode(buildEquality(toEvaluator(first), toEvaluator(second), true, hasTypedObjects));
      case "_!=_":
        return planCode(buildEquality(toEvaluator(first), toEvaluator(second), false, hasTypedObjects));
      case "_[_]":
        return planIndex(first, second, false);
      case "_?._":
      case "_[?_]":
        return planIndex(first, second, true);
      case "@not_strictly_false":
        return planCode(buildLoopCondition(toEvaluator(first)));
    }
    const overload = overloads.length === 1 ? overloads[0] : undefined;
    const isOptionalOr = overload === undefined || overload.startsWith("optional_or");
    if ((name === "or" || name === "orValue") && isOptionalOr && args.length === 2)
      return planCode(buildAlternative(toEvaluator(first), toEvaluator(second), name === "or"));
    if (overload === "in_list" && second.kind === "constant") {
      const plan = planMembership(first, second.value);
      if (plan) return plan;
    }
    const declaration = this.#environment.functions.get(name);
    if (!declaration) throw new EvaluationError(`no such overload: ${name}`);
    const constants = args.map((plan) => (plan.kind === "constant" ? plan.value : undefined));
    const evaluate = buildCall(declaration, overload, args.map(toEvaluator), constants);
    if (!conversions.has(name) || args.length !== 1 || first.kind !== "constant") return planCode(evaluate);
    const plan = fold(evaluate);
    if (plan.kind === "constant" && plan.value instanceof EvaluationError) throw plan.value;
    return plan;
  }

  #planList({ elements }: Expression & { kind: "list" }, scope: Scope | undefined): Plan {
    const plans = elements.map(({ value }) => this.plan(value, scope));
    const parts = plans.map(toEvaluator);
    // Upstream's cost of a list.
    const evaluate = buildLiteral(10, (frame) => {
      const list: Value[] = [];
      for (const [index, part] of parts.entries()) {
        const value = readPart(part(frame), elements[index]?.isOptional, () => "list element");
        if (value !== undefined) list.push(value);
      }
      return markBuiltList(list);
    });
    return plans.every(({ kind }) => kind === "constant") ? fold(evaluate) : planCode(evaluate);
  }

  #planMap({ entries }: Expression & { kind: "map" }, scope: Scope | undefined): Plan {
    const plans = entries.map(({ key, value }) => [this.plan(key, scope), this.plan(value, scope)] as const);
    const parts = plans.map(([key, value]) => [toEvaluator(key), toEvaluator(value)] as const);
    // Upstream's cost of a map.
    const evaluate = buildLiteral(30, (frame) => {
      const map = new Map<string, [Value, Value]>();
      for (const [index, [getKey, getValue]] of parts.entries()) {
        const key = requireValue(getKey(frame));
        const value = readPart(getValue(frame), entries[index]?.isOptional, () => `entry '${formatValue(key)}'`);
        requireHashable(key, value === undefined);
        // Lists and maps that are keys are all different, because Go compares them by their addresses.
        const text = toMapKey(key) ?? `*${index}`;
        if (value === undefined) map.delete(text);
        else map.set(text, [key, value]);
      }
      return new CelMap(map);
    });
    return plans.flat().every(({ kind }) => kind === "constant") ? fold(evaluate) : planCode(evaluate);
  }

  #planStruct(expression: Expression & { kind: "struct" }, scope: Scope | undefined): Plan {
    const { fields } = expression;
    const name = this.#checked.references.get(expression)?.name ?? expression.name;
    const parts = fields.map(({ value }) => toEvaluator(this.plan(value, scope)));
    const type = types.struct(name);
    return planCode(
      // Upstream's cost of a message.
      buildLiteral(40, (frame) => {
        const found = new Map<string, Value>();
        for (const [index, field] of fields.entries()) {
          const given = (parts[index] as Evaluator)(frame);
          const value = readPart(given, field.isOptional, () => `entry '${field.name}'`);
          if (value === undefined) found.delete(field.name);
          else found.set(field.name, value);
        }
        return name === "JSONPatch" ? createPatch(type, found) : new StructValue(type, found);
      }),
    );
  }

  #planLoop(loop: Expression & { kind: "comprehension" }, scope: Scope | undefined): Plan {
    const initial = toEvaluator(this.plan(loop.initial, scope));
    const range = toEvaluator(this.plan(loop.range, scope));
    const [accumulator, first, second] = [this.slots++, this.slots++, this.slots++] as const;
    const around: Scope = { outer: scope, names: new Map([[loop.accumulator, readAccumulator(accumulator, initial)]]) };
    const variables = new Map([[loop.variable, readSlot(first)]]);
    const isPair = loop.secondVariable !== undefined;
    if (isPair) variables.set(loop.secondVariable, readSlot(second));
    const inner: Scope = { outer: around, names: variables };
    const condition = toEvaluator(this.plan(loop.condition, inner));
    const step = toEvaluator(this.plan(loop.step, inner));
    const result = toEvaluator(this.plan(loop.result, around));
    /** Runs the step for an element, unless the condition is false. Reports whether the loop continues. */
    const advance = (frame: Frame, firstValue: Value, secondValue: Value): boolean => {
      const { slots } = frame;
      slots[first] = firstValue;
      slots[second] = secondValue;
      frame.countRound();
      const continues = condition(frame) !== false;
      if (continues) slots[accumulator] = step(frame);
      return continues;
    };

    return planCode((frame) => {
      const rangeValue = range(frame);
      if (rangeValue instanceof EvaluationError) return rangeValue;
      frame.slots[accumulator] = undefined;
      if (isList(rangeValue)) {
        // A step may add elements to this list. They are not visited.
        const { length } = rangeValue;
        let index = 0;
        for (const element of rangeValue) {
          if (index === length || !advance(frame, isPair ? index : element, element)) break;
          index++;
        }
      } else if (isMap(rangeValue)) {
        for (const [key, value] of listEntries(rangeValue)) if (!advance(frame, key, value)) break;
      } else {
        const type = nameGoType(rangeValue);
        const message = isPair
          ? `unsupported comprehension range type: ${type}`
          : `got '${type}', expected iterable type`;
        return new EvaluationError(message);
      }
      const value = result(frame);
      return !(value instanceof EvaluationError) && isList(value) && isGrowingList(value)
        ? markBuiltList(value.slice())
        : value;
    });
  }
}

/** Returns the evaluator of a variable; `written` is its name, perhaps with a dot before it. */
const findVariable = (written: string): Evaluator => {
  const name = removeDot(written);
  const find = ({ variables }: Frame): Result => {
    const value = variables.find(name);
    return value === undefined ? new EvaluationError(`no such attribute(s): ${written}`) : value;
  };
  return (frame) => attempt(find, frame);
};

const readSlot =
  (slot: number): Evaluator =>
  ({ slots }) =>
    slots[slot] as Result;

/** Returns a function that reads the accumulator of a loop. The first read sets its initial value. */
const readAccumulator =
  (slot: number, initial: Evaluator): Evaluator =>
  (frame) => {
    const value = frame.slots[slot];
    if (value !== undefined) return value;
    const start = initial(frame);
    const isEmptyList = !(start instanceof EvaluationError) && isList(start) && start.length === 0;
    const first = isEmptyList ? createGrowingList() : start;
    frame.slots[slot] = first;
    return first;
  };

/** Returns the function of a list, map or message literal. Its cost is charged even if a part of it is an error. */
const buildLiteral =
  (cost: number, evaluate: Evaluator): Evaluator =>
  (frame) => {
    const result = attempt(evaluate, frame);
    frame.charge(cost);
    return result;
  };

const requireValue = (value: Result): Value => {
  if (value instanceof EvaluationError) throw value;
  return value;
};

/** Returns the value of a part of a literal; undefined for an optional part whose value is an empty optional. */
const readPart = (given: Result, isOptional: boolean | undefined, describe: () => string): Value | undefined => {
  const value = requireValue(given);
  if (!isOptional) return value;
  if (value instanceof Optional) return value.value;
  throw new EvaluationError(`cannot initialize optional ${describe()} from non-optional value ${formatValue(value)}`);
};

/** Plans `operand[index]`, or with `isOptional` `operand[?index]` and `operand.?index`. */
const planIndex = (operand: Plan, index: Plan, isOptional: boolean): Plan => {
  const attribute = toAttribute(operand);
  if (index.kind === "constant") {
    const { value } = index;
    if (value instanceof EvaluationError) throw new EvaluationError("invalid qualifier type: *types.Err");
    // Upstream's error for an index of a wrong type names that type. A constant has a type of cel-go. A variable, which
    // cel-go doesn't convert, has a type of Go itself, such as []interface {}: then `hasGoType` is true.
    if (!isKey(value)) throw createKeyError(value, /* hasGoType */ false);
    addQualifier(attribute, { key: value, isOptional });
  } else {
    const inner = toAttribute(index);
    addQualifier(attribute, {
      compute: buildResolver(inner),
      hasGoType: hasGoType(inner),
      isOptional,
    });
  }
  return { kind: "attribute", attribute, isTest: false };
};

/** Plans `x in [1, 2]` as a search in a set, not a call of `in`. Returns undefined if `list` is no list of scalars. */
const planMembership = (element: Plan, list: Result): Plan | undefined => {
  if (list instanceof EvaluationError || !isList(list)) return undefined;
  if (list.length === 0) return constant(false);
  const evaluate = buildMembership(toEvaluator(element), toArray(list));
  return evaluate && planCode(evaluate);
};
