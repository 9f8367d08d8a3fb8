import type { CheckedExpression } from "./checker.ts";
import { countTraversal, getInnerSize } from "./cost.ts";
import type { Environment } from "./environment.ts";
import type { Evaluate, FunctionDeclaration, Overload } from "./functions.ts";
import { nameGoType } from "./go-types.ts";
import { formatValue } from "./libraries/format-text.ts";
import { compilePattern } from "./libraries/regex.ts";
import { createGrowingList, isGrowingList } from "./libraries/standard.ts";
import type { Expression } from "./syntax.ts";
import type { Type } from "./types.ts";
import * as types from "./types.ts";
import {
  CelMap,
  CelObject,
  createNoSuchOverloadError,
  Double,
  EvaluationError,
  emptyOptional,
  findInMap,
  getDouble,
  getType,
  isDouble,
  isEqual,
  isInt,
  isList,
  isMap,
  LibraryObject,
  listEntries,
  Optional,
  TypeValue,
  toMapKey,
  Uint,
  type Value,
  type ValueObject,
} from "./values.ts";

// A checked expression becomes functions that call each other, once; evaluating it calls them. It is planned as cel-go
// plans it, because the plan decides what a step costs: a path such as `a.b[c].d` is one attribute with qualifiers.
// Cel-go keeps the values of steps on a stack, to find a call's arguments when it charges for the call. They are missing
// only if a call of several arguments ended early because of an error; such a call is not charged.

/** The cost that is left. Evaluation stops with upstream's error when more is used. */
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

export interface Variables {
  /** Returns a variable's value, which may be computed only now; undefined if there is none. */
  find(name: string): Value | undefined;
}

/** A struct whose fields are computed when they are selected. */
export abstract class FieldObject extends CelObject {
  /** Returns a field's value; undefined if there is none; throws an EvaluationError if it can't be computed. */
  abstract find(name: string): Value | undefined;
  equals(other: this): boolean {
    return this === other;
  }
}

/** What a message literal such as `Object.spec{…}` makes. */
export class StructValue extends CelObject {
  readonly type: Type;
  readonly fields: ReadonlyMap<string, Value>;
  constructor(type: Type, fields: ReadonlyMap<string, Value>) {
    super();
    this.type = type;
    this.fields = fields;
  }
  equals(other: this): boolean {
    return this === other || isSameFields([...this.fields], (name) => other.fields.get(name), other.fields.size);
  }
}

const isSameFields = <Key>(
  entries: readonly (readonly [Key, Value])[],
  find: (key: Key) => Value | undefined,
  size: number,
): boolean => {
  const isSame = ([key, value]: readonly [Key, Value]) => {
    const other = find(key);
    return other !== undefined && isSameField(value, other);
  };
  return entries.length === size && entries.every(isSame);
};

/** Reports whether fields of messages are equal. Upstream compares them as Go does: two lists are never equal. */
const isSameField = (left: Value, right: Value): boolean => {
  if (left === right) return true;
  if (isList(left) || getType(left).name !== getType(right).name) return false;
  if (!isMap(left) || !isMap(right)) return isEqual(left, right);
  return isSameFields([...listEntries(left)], (key) => findInMap(right, key), [...listEntries(right)].length);
};

/** A value, or the error that takes its place until something absorbs it. */
type Result = Value | EvaluationError;

type Evaluator = (frame: Frame) => Result;

/** The state of one evaluation. */
class Frame {
  cost = 0;
  readonly variables: Variables;
  readonly limit: number;
  /** The variables of loops. That of a result is undefined until it is used first. */
  readonly slots: (Result | undefined)[];

  constructor(variables: Variables, limit: number, slots: number) {
    this.variables = variables;
    this.limit = Math.max(limit, 0);
    this.slots = new Array(slots).fill(undefined);
  }

  charge(cost: number): void {
    this.cost += cost;
    // Upstream's cost is unsigned.
    if (this.cost < 0) this.cost += 2 ** 64;
    if (this.cost > this.limit) throw new Interruption("operation cancelled: actual cost limit exceeded");
  }

  /** Charges steps that cost 1 each; evaluation would have ended at the first step beyond the limit. */
  chargeSteps(count: number): void {
    if (this.cost + count > this.limit) this.charge(Math.floor(this.limit) + 1 - this.cost);
    this.cost += count;
  }
}

/** Ends an evaluation; nothing absorbs it. */
class Interruption extends Error {}

/** Runs what may throw an error of the evaluation, and returns the error. */
const attempt = <Input>(run: (input: Input) => Result, input: Input): Result => {
  try {
    return run(input);
  } catch (error) {
    return toResult(error);
  }
};

const toResult = (error: unknown): EvaluationError => {
  if (error instanceof EvaluationError) return error;
  throw error;
};

/** A part of an expression as it is planned. */
type Plan =
  | { readonly kind: "constant"; readonly value: Result }
  | { readonly kind: "attribute"; readonly attribute: Attribute; readonly isTest: boolean }
  | { readonly kind: "code"; readonly evaluate: Evaluator };

/** A value with the fields and indexes that are selected from it, one after the other. */
type Attribute =
  | { readonly kind: "path"; readonly root: Evaluator; readonly isNative: boolean; readonly qualifiers: Qualifier[] }
  | {
      readonly kind: "conditional";
      readonly condition: Evaluator;
      readonly whenTrue: Attribute;
      readonly whenFalse: Attribute;
    };

interface Qualifier {
  readonly isOptional: boolean;
  /** What is selected, unless it is computed. */
  readonly key?: Key;
  /** Computes what is selected; `isNative` tells whether it is a variable's part, which upstream has as a value of Go. */
  readonly compute?: Evaluator;
  readonly isNative?: boolean;
  /** Whether only the presence is tested. */
  readonly isTest?: boolean;
  /** Whether the object is known to be a message, whose missing fields are null. */
  readonly isField?: boolean;
}

type Key = string | boolean | number | bigint | Uint | Double;

const isKey = (value: Value): value is Key =>
  typeof value === "string" ||
  typeof value === "boolean" ||
  typeof value === "number" ||
  typeof value === "bigint" ||
  value instanceof Uint ||
  value instanceof Double;

const createKeyError = (value: Value, isNative: boolean): EvaluationError => {
  const native = value === null ? "<nil>" : isList(value) ? "[]interface {}" : "map[string]interface {}";
  const isJson = value === null || isList(value) || !(value instanceof CelObject);
  return new EvaluationError(`invalid qualifier type: ${isNative && isJson ? native : nameGoType(value)}`);
};

/** Reports whether a value is an object from JSON. */
const isObject = (value: Value): value is ValueObject => {
  if (typeof value !== "object" || value === null) return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
};

/** Returns the part of a value under a key; undefined if there is none. */
const findPart = (object: Result, key: Key, isTest: boolean, isField: boolean): Result | undefined => {
  if (object instanceof EvaluationError) return object;
  if (isObject(object)) return findInMap(object, key);
  if (isList(object)) return findElement(object, key);
  if (object instanceof FieldObject) return findField(object, key);
  if (object instanceof StructValue) return findInStruct(object, key, isTest, isField);
  return isMap(object) ? findInMap(object, key) : undefined;
};

const findElement = (list: readonly Value[], key: Key): Result | undefined => {
  if (typeof key === "number" && Number.isSafeInteger(key)) return list[key];
  if (isInt(key)) return undefined;
  const number = key instanceof Uint ? key.value : isDouble(key) ? getDouble(key) : undefined;
  if (number === undefined) return new EvaluationError(`unsupported index type '${getType(key).name}' in list`);
  const isIndex =
    typeof number === "bigint" ? number < 2n ** 63n : Number.isInteger(number) && Math.abs(number) < 2 ** 63;
  return isIndex ? list[Number(number)] : new EvaluationError(`unsupported index value ${formatValue(key)} in list`);
};

const findField = (object: FieldObject, key: Key): Result | undefined => {
  if (typeof key !== "string") return createNoSuchOverloadError();
  try {
    return object.find(key);
  } catch (error) {
    return toResult(error);
  }
};

const patchTexts = ["op", "path", "from"];
const patchFields = [...patchTexts, "value"];

const findInStruct = (struct: StructValue, key: Key, isTest: boolean, isField: boolean): Result | undefined => {
  if (struct.type.name === "JSONPatch" && typeof key === "string") {
    if (!patchFields.includes(key)) return new EvaluationError(`unsupported ${isTest ? "field" : "indexer"}: ${key}`);
    const value = struct.fields.get(key) ?? (patchTexts.includes(key) ? "" : null);
    return isTest && (value === "" || !struct.fields.has(key)) ? undefined : value;
  }
  if (!isField || typeof key !== "string") return undefined;
  const value = struct.fields.get(key);
  return value === undefined && isTest ? undefined : toNativeField(value ?? null);
};

const createMissingError = (object: Value, key: Key): EvaluationError =>
  new EvaluationError(`${isList(object) ? "index out of bounds" : "no such key"}: ${formatValue(key)}`);

/** The types in Go of values that cel-go can't make again of Go's values. */
const nativeTypes: Readonly<Record<string, string>> = {
  "kubernetes.Quantity": "*resource.Quantity",
  "kubernetes.URL": "*url.URL",
  "kubernetes.Semver": "semver.Version",
  "net.CIDR": "netip.Prefix",
  "net.IP": "netip.Addr",
};

/** Returns what cel-go makes of a value that it turned into a value of Go, as it does with values in optionals. */
const toNative = (value: Value): Result => {
  if (!(value instanceof CelObject)) return value;
  if (value instanceof Optional) return value.value === undefined ? null : toNative(value.value);
  if (value instanceof TypeValue) return value.of.name;
  if (value instanceof StructValue && value.type.name !== "JSONPatch")
    return Object.fromEntries(Array.from(value.fields, ([name, field]) => [name, toNativeField(field)]));
  if (!(value instanceof LibraryObject)) return value;
  const { name } = value.type;
  if (name.startsWith("kubernetes.authorization.")) return createNoSuchOverloadError();
  const type = nativeTypes[name];
  return type ? new EvaluationError(`unsupported conversion to ref.Val: (${type})${value}`) : value;
};

/** Returns what cel-go makes of a field's value, whose elements it turned into values of Go. */
const toNativeField = (value: Value): Value => {
  // Errors stay where the values were, until one is used.
  const convert = (one: Value) => toNative(one) as Value;
  if (isList(value)) return value.map(convert);
  if (value instanceof CelMap)
    return new CelMap(new Map(Array.from(value.entries, ([text, [key, one]]) => [text, [key, convert(one)]])));
  return convert(value);
};

/** Selects a value's parts. What is selected from an optional value, or optionally, is an optional value. */
const select = (frame: Frame, root: Value, qualifiers: readonly Qualifier[], start = 0): Result => {
  let isOptional = start === 0 && root instanceof Optional;
  if (isOptional && (root as Optional).value === undefined) return root;
  let object: Result = isOptional ? toNative(root) : root;
  for (let index = start; index < qualifiers.length; index++) {
    const qualifier = qualifiers[index] as Qualifier;
    isOptional ||= qualifier.isOptional;
    const { key = computeKey(frame, qualifier), isTest = false, isField = false } = qualifier;
    const isKnown = !(key instanceof EvaluationError);
    const part = isKnown ? findPart(object, key, isTest || isOptional, isField) : key;
    if (isOptional) {
      if (part instanceof EvaluationError) return part;
      if (part === undefined) return emptyOptional;
    }
    frame.charge(1);
    if (part instanceof EvaluationError) return part;
    if (isTest && !isOptional) object = part !== undefined;
    else if (part === undefined) return createMissingError(object as Value, key as Key);
    else object = part;
  }
  // Upstream's optional values may contain errors, too.
  return isOptional ? new Optional(object as Value) : object;
};

const computeKey = (frame: Frame, { compute, isNative = false }: Qualifier): Key | EvaluationError => {
  const value = (compute as Evaluator)(frame);
  if (value instanceof EvaluationError || isKey(value)) return value;
  return createKeyError(value, isNative);
};

/** Returns a function that resolves an attribute. What it returns is charged for selected parts, not for itself. */
const buildResolver = (attribute: Attribute): Evaluator => {
  if (attribute.kind === "conditional") {
    const { condition } = attribute;
    const [whenTrue, whenFalse] = [buildResolver(attribute.whenTrue), buildResolver(attribute.whenFalse)];
    return (frame) => {
      const value = condition(frame);
      if (value === true) return whenTrue(frame);
      if (value === false) return whenFalse(frame);
      return value instanceof EvaluationError ? value : createNoSuchOverloadError();
    };
  }
  const { root, qualifiers } = attribute;
  const names = getPlainNames(qualifiers);
  const tested = names.length === qualifiers.length - 1 ? findTestedName(qualifiers.at(-1)) : undefined;
  return (frame) => {
    let object = root(frame);
    if (object instanceof EvaluationError) return object;
    let index = 0;
    // Most parts are members of objects from JSON.
    for (; index < names.length; index++) {
      if (!isObject(object)) break;
      const part: Value | undefined = object[names[index] as string];
      if (part === undefined) break;
      object = part;
    }
    if (index > 0) frame.chargeSteps(index);
    if (tested !== undefined && index === names.length && isObject(object)) {
      frame.charge(1);
      return object[tested] !== undefined;
    }
    return index === qualifiers.length && !(object instanceof Optional)
      ? object
      : select(frame, object, qualifiers, index);
  };
};

/** Returns the names of the first qualifiers, as long as they can be read without looking who owns a member. */
const getPlainNames = (qualifiers: readonly Qualifier[]): readonly string[] => {
  const end = qualifiers.findIndex((qualifier) => !isPlainName(qualifier) || qualifier.isTest);
  return qualifiers.slice(0, end < 0 ? undefined : end).map(({ key }) => key as string);
};

const isPlainName = ({ key, isOptional }: Qualifier): boolean =>
  typeof key === "string" && !isOptional && !(key in Object.prototype);

/** Returns the name whose presence is tested, if it can be read like other names. */
const findTestedName = (qualifier: Qualifier | undefined): string | undefined =>
  qualifier?.isTest && isPlainName(qualifier) ? (qualifier.key as string) : undefined;

const addQualifier = (attribute: Attribute, qualifier: Qualifier): void => {
  if (attribute.kind === "path") attribute.qualifiers.push(qualifier);
  else {
    addQualifier(attribute.whenTrue, qualifier);
    addQualifier(attribute.whenFalse, qualifier);
  }
};

/** Returns the function that evaluates a planned part, and charges for it. */
const toEvaluator = (plan: Plan): Evaluator => {
  if (plan.kind === "code") return plan.evaluate;
  if (plan.kind === "constant") {
    const { value } = plan;
    return () => value;
  }
  const resolve = buildResolver(plan.attribute);
  // A test costs nothing: upstream takes 1 back, also from a condition that it didn't charge.
  const cost = Number(plan.attribute.kind === "path") - Number(plan.isTest);
  if (!plan.isTest && cost === 0) return resolve;
  return (frame) => {
    const value = resolve(frame);
    if (cost !== 0) frame.charge(cost);
    return plan.isTest && value instanceof Optional ? value.value !== undefined : value;
  };
};

/** Returns the attribute of a planned part, to which qualifiers can be added. */
const toAttribute = (plan: Plan): Attribute =>
  plan.kind === "attribute"
    ? plan.attribute
    : { kind: "path", root: toEvaluator(plan), isNative: false, qualifiers: [] };

/** The variables of a loop, and those around it. */
interface Scope {
  readonly outer: Scope | undefined;
  readonly names: ReadonlyMap<string, Evaluator>;
}

/** Functions whose last step is to run a pattern: a constant one is compiled with the program. */
const patternFunctions = new Set(["matches", "find", "findAll"]);
const conversions = new Set("bool bytes double duration dyn int string timestamp type uint".split(" "));

const noVariables: Variables = { find: () => undefined };

const constant = (value: Result): Plan => ({ kind: "constant", value });
const code = (evaluate: Evaluator): Plan => ({ kind: "code", evaluate });

/** Evaluates what consists of constants. */
const fold = (evaluate: Evaluator): Plan => {
  const result = run(evaluate, new Frame(noVariables, Number.POSITIVE_INFINITY, 0));
  if (result instanceof Interruption) throw new EvaluationError(result.message);
  return constant(result);
};

const hasNamelessPart = ({ name, parameters }: Type): boolean => name === "" || parameters.some(hasNamelessPart);

/** Makes a program of an expression; throws an EvaluationError if upstream can't make one. */
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
      const frame = new Frame(variables, budget.left, planner.slots);
      const result = run(evaluate, frame);
      const { cost } = frame;
      budget.left -= cost;
      return result instanceof Error ? { error: result.message, cost } : { value: result, cost };
    },
  };
};

const run = (evaluate: Evaluator, frame: Frame): Result | Interruption => {
  try {
    return evaluate(frame);
  } catch (error) {
    if (error instanceof Interruption) return error;
    // Upstream's costs of some functions depend on the types of arguments, and fail for other ones.
    if (error instanceof TypeError && error.message.startsWith("interface conversion"))
      return new Interruption(`internal error: ${error.message}`);
    throw error;
  }
};

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

  #planName({ id }: Expression, written: string, scope: Scope | undefined): Plan {
    const reference = this.#checked.references.get(id);
    const name = reference && "name" in reference ? reference.name : written;
    if (reference && "name" in reference && reference.value !== undefined) return constant(reference.value);
    if (this.#checked.types.get(id)?.kind === "type") throw new EvaluationError(`reference to undefined type: ${name}`);
    let inner = scope;
    while (inner && !inner.names.has(name)) inner = inner.outer;
    const local = inner?.names.get(name);
    return {
      kind: "attribute",
      attribute: { kind: "path", root: local ?? findVariable(name), isNative: !local, qualifiers: [] },
      isTest: false,
    };
  }

  #planSelect(expression: Expression & { kind: "select" }, scope: Scope | undefined): Plan {
    const { id, operand, field: key, isTest } = expression;
    if (this.#checked.references.has(id)) return this.#planName(expression, key, scope);
    const attribute = toAttribute(this.plan(operand, scope));
    const isField = this.#checked.types.get(operand.id)?.kind === "struct";
    addQualifier(attribute, { key, isTest, isField, isOptional: false });
    return { kind: "attribute", attribute, isTest };
  }

  #planCall(expression: Expression & { kind: "call" }, scope: Scope | undefined): Plan {
    const { id, function: name, target } = expression;
    const written = target ? [target, ...expression.arguments] : expression.arguments;
    const args = written.map((argument) => this.plan(argument, scope));
    const [first, second, third] = args as [Plan, Plan, Plan];
    switch (name) {
      case "_&&_":
        return code(buildLogic(args.map(toEvaluator), false));
      case "_||_":
        return code(buildLogic(args.map(toEvaluator), true));
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
        return code(buildEquality(toEvaluator(first), toEvaluator(second), true));
      case "_!=_":
        return code(buildEquality(toEvaluator(first), toEvaluator(second), false));
      case "_[_]":
        return planIndex(first, second, false);
      case "_?._":
      case "_[?_]":
        return planIndex(first, second, true);
      case "@not_strictly_false":
        return code(buildLoopCondition(toEvaluator(first)));
    }
    const reference = this.#checked.references.get(id);
    const candidates = reference && "overloads" in reference ? reference.overloads : [];
    const overload = candidates.length === 1 ? candidates[0] : undefined;
    const isOptionalOr = overload === undefined || overload.startsWith("optional_or");
    if ((name === "or" || name === "orValue") && isOptionalOr && args.length === 2)
      return code(buildAlternative(toEvaluator(first), toEvaluator(second), name === "or"));
    if (overload === "in_list" && second.kind === "constant") {
      const plan = planMembership(first, second.value);
      if (plan) return plan;
    }
    const declaration = this.#environment.functions.get(name);
    if (!declaration) throw new EvaluationError(`no such overload: ${name}`);
    const evaluate = buildCall(declaration, overload, args);
    if (!conversions.has(name) || args.length !== 1 || first.kind !== "constant") return code(evaluate);
    const plan = fold(evaluate);
    if (plan.kind === "constant" && plan.value instanceof EvaluationError) throw plan.value;
    return plan;
  }

  #planList({ elements }: Expression & { kind: "list" }, scope: Scope | undefined): Plan {
    const plans = elements.map(({ value }) => this.plan(value, scope));
    const values = plans.map(toEvaluator);
    const evaluate: Evaluator = (frame) => {
      const result = collect(frame);
      frame.charge(10);
      return result;
    };
    const collect: Evaluator = (frame) => {
      const list: Value[] = [];
      for (let index = 0; index < values.length; index++) {
        const value = (values[index] as Evaluator)(frame);
        if (value instanceof EvaluationError) return value;
        if (!elements[index]?.isOptional) list.push(value);
        else if (!(value instanceof Optional)) {
          const subject = "cannot initialize optional list element";
          return new EvaluationError(`${subject} from non-optional value ${formatValue(value)}`);
        } else if (value.value !== undefined) list.push(value.value);
      }
      return list;
    };
    return plans.every(({ kind }) => kind === "constant") ? fold(evaluate) : code(evaluate);
  }

  #planMap({ entries }: Expression & { kind: "map" }, scope: Scope | undefined): Plan {
    const plans = entries.map(({ key, value }) => [this.plan(key, scope), this.plan(value, scope)] as const);
    const parts = plans.map(([key, value]) => [toEvaluator(key), toEvaluator(value)] as const);
    const evaluate: Evaluator = (frame) => {
      const result = collect(frame);
      frame.charge(30);
      return result;
    };
    const collect: Evaluator = (frame) => {
      const map = new Map<string, [Value, Value]>();
      for (const [index, [getKey, getValue]] of parts.entries()) {
        const key = getKey(frame);
        if (key instanceof EvaluationError) return key;
        const value = getEntry(getValue(frame), entries[index]?.isOptional ?? false, key);
        if (value instanceof EvaluationError) return value;
        requireHashable(key);
        // Go compares lists and maps that are keys by their places in memory.
        const text = toMapKey(key) ?? `*${index}`;
        if (value === undefined) map.delete(text);
        else map.set(text, [key, value]);
      }
      return new CelMap(map);
    };
    return plans.flat().every(({ kind }) => kind === "constant") ? fold(evaluate) : code(evaluate);
  }

  #planStruct({ name, fields }: Expression & { kind: "struct" }, scope: Scope | undefined): Plan {
    const values = fields.map(({ value }) => toEvaluator(this.plan(value, scope)));
    const type = types.struct(name);
    const collect: Evaluator = (frame) => {
      const found = new Map<string, Value>();
      for (const [index, field] of fields.entries()) {
        const value = getEntry((values[index] as Evaluator)(frame), field.isOptional, field.name);
        if (value instanceof EvaluationError) return value;
        if (value === undefined) found.delete(field.name);
        else found.set(field.name, value);
      }
      return name === "JSONPatch" ? createPatch(type, found) : new StructValue(type, found);
    };
    return code((frame) => {
      const result = collect(frame);
      frame.charge(40);
      return result;
    });
  }

  #planLoop(loop: Expression & { kind: "comprehension" }, scope: Scope | undefined): Plan {
    const initial = toEvaluator(this.plan(loop.initial, scope));
    const range = toEvaluator(this.plan(loop.range, scope));
    const [accumulator, first, second] = [this.slots++, this.slots++, this.slots++] as const;
    const names = new Map([[loop.accumulator, readAccumulator(accumulator, initial)]]);
    const resultScope: Scope = { outer: scope, names };
    const all = new Map(names);
    if (loop.secondVariable !== undefined && !all.has(loop.secondVariable))
      all.set(loop.secondVariable, readSlot(second));
    if (!names.has(loop.variable)) all.set(loop.variable, readSlot(first));
    const inner: Scope = { outer: scope, names: all };
    const condition = toEvaluator(this.plan(loop.condition, inner));
    const step = toEvaluator(this.plan(loop.step, inner));
    const result = toEvaluator(this.plan(loop.result, resultScope));
    const isPair = loop.secondVariable !== undefined;

    return code((frame) => {
      const { slots } = frame;
      const over = range(frame);
      if (over instanceof EvaluationError) return over;
      slots[accumulator] = undefined;
      if (isList(over)) {
        const { length } = over;
        for (let index = 0; index < length; index++) {
          slots[first] = isPair ? index : over[index];
          slots[second] = over[index];
          if (condition(frame) === false) break;
          slots[accumulator] = step(frame);
        }
      } else if (isMap(over)) {
        for (const [key, value] of listEntries(over)) {
          slots[first] = key;
          slots[second] = value;
          if (condition(frame) === false) break;
          slots[accumulator] = step(frame);
        }
      } else {
        const type = nameGoType(over);
        const message = isPair
          ? `unsupported comprehension range type: ${type}`
          : `got '${type}', expected iterable type`;
        return new EvaluationError(message);
      }
      const value = result(frame);
      return !(value instanceof EvaluationError) && isList(value) && isGrowingList(value) ? value.slice() : value;
    });
  }
}

const findVariable =
  (name: string): Evaluator =>
  ({ variables }) => {
    try {
      const value = variables.find(name);
      return value === undefined ? new EvaluationError(`no such attribute(s): ${name}`) : value;
    } catch (error) {
      return toResult(error);
    }
  };

const readSlot =
  (slot: number): Evaluator =>
  ({ slots }) =>
    slots[slot] as Result;

/** Returns what reads the result of a loop so far; it begins when it is read first. */
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

/** Returns the value of an entry or a field; undefined if it is optional and empty. */
const getEntry = (value: Result, isOptional: boolean, key: Value): Result | undefined => {
  if (value instanceof EvaluationError || !isOptional) return value;
  if (value instanceof Optional) return value.value;
  const subject = `cannot initialize optional entry '${formatValue(key)}'`;
  return new EvaluationError(`${subject} from non-optional value ${formatValue(value)}`);
};

const createPatch = (type: Type, fields: ReadonlyMap<string, Value>): Result => {
  for (const name of patchTexts) {
    const value = fields.get(name);
    if (value !== undefined && typeof value !== "string")
      return new EvaluationError(`unexpected type ${getNativeType(value)} for JSONPatchType '${name}' field`);
  }
  for (const name of fields.keys())
    if (!patchFields.includes(name)) return new EvaluationError(`unexpected JSONPatchType field: ${name}`);
  return new StructValue(type, fields);
};

/** Returns the type of a value in Go when cel-go has turned it into a value of Go. */
const getNativeType = (value: Value): string => {
  if (typeof value === "boolean") return "bool";
  if (isInt(value)) return "int64";
  if (isDouble(value)) return "float64";
  if (value instanceof Uint) return "uint64";
  if (value === null) return "structpb.NullValue";
  if (isList(value)) return "[]interface {}";
  if (isMap(value)) return value instanceof CelMap ? "map[ref.Val]ref.Val" : "map[string]interface {}";
  return nameGoType(value);
};

/** Reports whether an attribute is a part of a variable. */
const isNative = (attribute: Attribute): boolean =>
  attribute.kind === "path" ? attribute.isNative : isNative(attribute.whenTrue) && isNative(attribute.whenFalse);

const planIndex = (operand: Plan, index: Plan, isOptional: boolean): Plan => {
  const attribute = toAttribute(operand);
  if (index.kind === "constant") {
    const { value } = index;
    if (value instanceof EvaluationError) throw new EvaluationError("invalid qualifier type: *types.Err");
    if (!isKey(value)) throw createKeyError(value, false);
    addQualifier(attribute, { key: value, isOptional });
  } else {
    const inner = toAttribute(index);
    addQualifier(attribute, {
      compute: buildResolver(inner),
      isNative: isNative(inner),
      isOptional,
    });
  }
  return { kind: "attribute", attribute, isTest: false };
};

/** Returns the function of `&&` or `||`: it ends at `decisive`, and otherwise gives the first error. */
const buildLogic = (terms: readonly Evaluator[], decisive: boolean): Evaluator => {
  return (frame) => {
    let error: EvaluationError | undefined;
    for (let index = 0; index < terms.length; index++) {
      const value = (terms[index] as Evaluator)(frame);
      if (value === decisive) return decisive;
      if (value !== !decisive) error ??= value instanceof EvaluationError ? value : createNoSuchOverloadError();
    }
    return error ?? !decisive;
  };
};

const buildLoopCondition =
  (term: Evaluator): Evaluator =>
  (frame) => {
    const value = term(frame);
    frame.charge(1);
    return value !== false;
  };

const buildEquality = (left: Evaluator, right: Evaluator, isPositive: boolean): Evaluator => {
  return (frame) => {
    const first = left(frame);
    const second = right(frame);
    const result = compare(first, second, isPositive);
    frame.charge(isPositive && first instanceof LibraryObject ? 1 : countComparison(first, second));
    return result;
  };
};

const compare = (left: Result, right: Result, isPositive: boolean): Result => {
  if (left instanceof EvaluationError) return left;
  if (left instanceof Optional && (left.value as Result) instanceof EvaluationError) return left.value as Result;
  if (right instanceof EvaluationError) return right;
  if (typeof left === "string" && typeof right === "string") return (left === right) === isPositive;
  try {
    return isEqual(left, right) === isPositive;
  } catch (error) {
    // What can't be compared is not equal.
    return isPositive ? toResult(error) : toResult(error) !== undefined;
  }
};

const countComparison = (left: Result, right: Result): number => {
  if (typeof left === "string" && typeof right === "string") {
    const length = Math.min(left.length, right.length);
    if (length <= 10) return Math.min(length, 1);
  }
  return countTraversal(Math.min(getInnerSize(toArgument(left)), getInnerSize(toArgument(right))));
};

/** Returns an argument for the computation of costs. An error is undefined; it has the size 1. */
const toArgument = (value: Result): Value =>
  value instanceof EvaluationError ? (undefined as unknown as Value) : value;

/** Returns the function of `or` or `orValue`, which evaluates its second operand only if the first one is empty. */
const buildAlternative =
  (left: Evaluator, right: Evaluator, isOr: boolean): Evaluator =>
  (frame) => {
    const value = left(frame);
    if (!(value instanceof Optional)) return value;
    if (value.value === undefined) return right(frame);
    return isOr ? value : value.value;
  };

const unhashableTypes = new Set(["bytes", "kubernetes.NamedFormat", "kubernetes.Semver"]);

/** Ends the evaluation for a value that Go doesn't take as a key of a map. */
const requireHashable = (value: Value): void => {
  if (typeof value !== "object" || !unhashableTypes.has(getType(value).name)) return;
  throw new Interruption(`internal error: runtime error: hash of unhashable type ${nameGoType(value)}`);
};

/** Plans `x in [1, 2]` without a call, which therefore costs nothing; undefined if the list has other values. */
const planMembership = (element: Plan, list: Result): Plan | undefined => {
  if (list instanceof EvaluationError || !isList(list)) return undefined;
  if (list.length === 0) return constant(false);
  const members = new Set(list.map(toMember));
  if (members.has(undefined)) return undefined;
  const evaluate = toEvaluator(element);
  return code((frame) => {
    const value = evaluate(frame);
    if (value instanceof EvaluationError) return value;
    requireHashable(value);
    const member = toMember(value);
    return member !== undefined && members.has(member);
  });
};

/** Returns a value that equal values of all types of numbers share; undefined for anything but texts, bools and numbers. */
const toMember = (value: Value): string | boolean | number | bigint | undefined => {
  if (typeof value === "string" || typeof value === "boolean" || typeof value === "number") return value;
  if (value instanceof Double) return value.value;
  const integer = value instanceof Uint ? value.value : value;
  if (typeof integer !== "bigint") return undefined;
  return Number.isSafeInteger(Number(integer)) ? Number(integer) : integer;
};

/** Returns the function of a call. Its arguments are evaluated first; an error among them is its result. */
const buildCall = (declaration: FunctionDeclaration, id: string | undefined, plans: readonly Plan[]): Evaluator => {
  const args = plans.map(toEvaluator);
  const overload = declaration.overloads.find((candidate) => candidate.id === id);
  const apply = findImplementation(declaration, overload);
  const count = buildCost(declaration, overload);
  const pattern = plans[1];
  const hasPattern =
    patternFunctions.has(declaration.name) && pattern?.kind === "constant" && typeof pattern.value === "string";
  if (hasPattern) {
    compilePattern(`${pattern.value}`);
    return buildVariadic(args, withText(apply), count);
  }
  const bound = declaration.overloads.filter(({ evaluate }) => evaluate).length;
  const isDispatched = !declaration.evaluate && !overload?.evaluate && bound > 1;
  const isVariadic = isDispatched || declaration.name === "format";

  const [first, second] = args;
  if (first && args.length === 1)
    return (frame) => {
      const value = first(frame);
      const result = value instanceof EvaluationError ? value : attempt(apply, value);
      frame.charge(count ? count([toArgument(value)], toArgument(result)) : 1);
      return result;
    };
  if (first && second && args.length === 2 && !isVariadic)
    return (frame) => {
      const left = first(frame);
      const right = second(frame);
      let result: Result;
      if (left instanceof EvaluationError) result = left;
      else if (right instanceof EvaluationError) result = right;
      else
        try {
          result = apply(left, right);
        } catch (error) {
          result = toResult(error);
        }
      frame.charge(count ? count([toArgument(left), toArgument(right)], toArgument(result)) : 1);
      return result;
    };
  return buildVariadic(args, apply, count);
};

/** Returns the function of a call that ends at the first error, uncharged unless that is the last argument. */
const buildVariadic = (args: readonly Evaluator[], apply: Evaluate, count: Overload["cost"] | undefined): Evaluator => {
  return (frame) => {
    const values: Value[] = [];
    let result: Result | undefined;
    for (const evaluate of args) {
      const value = evaluate(frame);
      values.push(toArgument(value));
      if (value instanceof EvaluationError) {
        result = value;
        break;
      }
    }
    result ??= attempt((given: Value[]) => apply(...given), values);
    if (values.length === args.length) frame.charge(count ? count(values, toArgument(result)) : 1);
    return result;
  };
};

/** Upstream's functions with a constant pattern take anything for a text that Go has as a text. */
const withText =
  (apply: Evaluate): Evaluate =>
  (value: Value, ...rest: Value[]) => {
    const text = toNative(value);
    const [, limit = 0] = rest;
    if (typeof text !== "string" || !isInt(limit)) throw createNoSuchOverloadError();
    return apply(text, ...rest);
  };

/** Returns what computes the cost of a call: Kubernetes' cost of the function comes first; undefined if it is 1. */
const buildCost = (declaration: FunctionDeclaration, overload: Overload | undefined): Overload["cost"] | undefined => {
  const { cost } = declaration;
  if (!cost) return overload?.cost;
  return (args, result) => cost(args, result, overload?.id) ?? overload?.cost?.(args, result) ?? 1;
};

/** Returns the function for a call: that of all overloads, that of the only one that fits, or one that chooses. */
const findImplementation = (declaration: FunctionDeclaration, overload: Overload | undefined): Evaluate => {
  if (declaration.evaluate) return declaration.evaluate;
  const { name, overloads } = declaration;
  const candidates = (overload?.evaluate ? [overload] : overloads).flatMap(({ evaluate, parameters }) =>
    evaluate ? [{ evaluate, guards: parameters.map(buildGuard) }] : [],
  );
  const createError = (args: readonly Value[]) =>
    new EvaluationError(`no such overload: ${name}(${args.map((value) => getType(value).name).join(", ")})`);
  const [only] = candidates;
  if (only && candidates.length === 1 && only.guards.length <= 2) {
    const { evaluate, guards } = only;
    const [first = takeAny, second = takeAny] = guards;
    // Without the spreading of arguments, which takes longer than most functions.
    if (guards.length === 1)
      return (value: Value) => {
        if (!first(value)) throw createError([value]);
        return evaluate(value);
      };
    if (guards.length === 2)
      return (left: Value, right: Value) => {
        if (!first(left) || !second(right)) throw createError([left, right]);
        return evaluate(left, right);
      };
  }
  return (...args: Value[]) => {
    for (const { evaluate, guards } of candidates)
      if (guards.length === args.length && guards.every((guard, index) => guard(args[index] as Value)))
        return evaluate(...args);
    throw createError(args);
  };
};

const takeAny = () => true;

/** Returns what reports whether a value fits a parameter. Of a list and a map, only the first element counts. */
const buildGuard = ({ kind, name, parameters }: Type): ((value: Value) => boolean) => {
  const [first, second] = parameters.map(buildGuard);
  if (kind === "dyn" || kind === "parameter") return takeAny;
  if (kind === "string") return (value) => typeof value === "string";
  if (kind === "list" && first) return (value) => isList(value) && (value.length === 0 || first(value[0] as Value));
  if (kind === "map" && first && second)
    return (value) => {
      if (!isMap(value)) return false;
      for (const [key, one] of listEntries(value)) return first(key) && second(one);
      return true;
    };
  return (value) => getType(value).name === name;
};
