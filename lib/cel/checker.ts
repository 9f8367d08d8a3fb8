import { type Environment, namedTypes, namedTypesWithoutValue } from "./environment.ts";
import type { FunctionDeclaration, Overload } from "./functions.ts";
import { findInvalidLiterals, formatMismatch } from "./literals.ts";
import type { Expression, Issue } from "./syntax.ts";
import { findMoreGeneral, isDynOrError, replaceParameters, TooManySteps, TypeBindings } from "./type-bindings.ts";
import type { Type } from "./types.ts";
import * as types from "./types.ts";
import { countCodePoints, getType, TypeValue, type Value } from "./values.ts";

/** An expression and what its names mean. */
export interface CheckedExpression {
  /** The expression with its names resolved: `a.b` can be one name, and the call `a.b(c)` one without a target. */
  readonly expression: Expression;
  readonly type: Type;
  /** The type of each expression, by its id. */
  readonly types: ReadonlyMap<number, Type>;
  /** What identifiers, calls and message literals refer to, by their id. */
  readonly references: ReadonlyMap<number, Reference>;
}

/** A variable or type, with the value of a type; or the overloads of a function that fit the static types. */
export type Reference = { readonly name: string; readonly value?: Value } | { readonly overloads: readonly string[] };

/** Finds the types of an expression and of its parts, or what is wrong with them. */
export const check = (expression: Expression, environment: Environment): CheckedExpression | readonly Issue[] => {
  const checker = new Checker(environment);
  try {
    const resolved = checker.check(expression);
    if (checker.issues.length > 0) return checker.issues;
    const checked = checker.finish(resolved);
    const issues = findInvalidLiterals(checked.expression, checked.types, environment);
    return issues.length > 0 ? issues : checked;
  } catch (thrown) {
    if (!(thrown instanceof TooManySteps)) throw thrown;
    return [{ offset: expression.offset, message: "the types of the expression are too large" }];
  }
};

type Kind<Name extends Expression["kind"]> = Extract<Expression, { kind: Name }>;
type Call = Kind<"call">;

/** Variables of a macro, and those around it. */
interface Scope {
  readonly variables: ReadonlyMap<string, Type>;
  readonly outer: Scope | undefined;
}

/** Follows upstream's checker step by step: the order of steps shows in errors and in the types of empty lists. */
class Checker {
  readonly issues: Issue[] = [];
  readonly #environment: Environment;
  readonly #types = new Map<number, Type>();
  readonly #references = new Map<number, Reference>();
  readonly #bindings = new TypeBindings();
  #scope: Scope | undefined;
  #freeParameters = 0;

  constructor(environment: Environment) {
    this.#environment = environment;
  }

  finish(expression: Expression): CheckedExpression {
    const finalTypes = new Map<number, Type>();
    for (const [id, type] of this.#types) finalTypes.set(id, this.#bindings.substitute(type, true));
    const references = new Map(this.#references);
    for (const [id, reference] of references) {
      const named = "name" in reference && namedTypes.get(reference.name);
      if (named && finalTypes.get(id)?.kind === "type")
        references.set(id, { ...reference, value: new TypeValue(named) });
    }
    return { expression, type: finalTypes.get(expression.id) ?? types.dyn, types: finalTypes, references };
  }

  /** Sets the type of an expression and of its parts, and returns it with its names resolved. */
  check(expression: Expression): Expression {
    switch (expression.kind) {
      case "literal":
        this.#types.set(expression.id, getType(expression.value));
        return expression;
      case "identifier":
        return this.#checkIdentifier(expression);
      case "select":
        return this.#checkSelect(expression);
      case "call":
        return expression.function === "_?._" ? this.#checkOptionalSelect(expression) : this.#checkCall(expression);
      case "list":
        return this.#checkList(expression);
      case "map":
        return this.#checkMap(expression);
      case "struct":
        return this.#checkStruct(expression);
      case "comprehension":
        return this.#checkComprehension(expression);
    }
  }

  #checkIdentifier(expression: Kind<"identifier">): Expression {
    const resolved = this.#resolveName(expression, expression.name);
    if (resolved) return resolved;
    this.#types.set(expression.id, types.error);
    this.#reportUndeclared(expression, expression.name);
    return expression;
  }

  #checkSelect(expression: Kind<"select">): Expression {
    const name = toQualifiedName(expression);
    const resolved = name === undefined ? undefined : this.#resolveName(expression, name);
    if (resolved) return resolved;
    const operand = this.check(expression.operand);
    const type = this.#findFieldType(expression, operand, expression.field);
    this.#types.set(expression.id, expression.isTest ? types.bool : this.#bindings.substitute(type));
    return { ...expression, operand };
  }

  #checkOptionalSelect(expression: Call): Expression {
    const [operand, field] = expression.arguments as [Expression, Kind<"literal">];
    const checked = this.check(operand);
    const type = this.#findFieldType(expression, checked, String(field.value), true);
    this.#types.set(expression.id, this.#bindings.substitute(type));
    this.#references.set(expression.id, { overloads: ["select_optional_field"] });
    return { ...expression, arguments: [checked, field] };
  }

  /** Returns the type of `operand.field`, or with `isOptional` of `operand.?field`. */
  #findFieldType(expression: Expression, operand: Expression, field: string, isOptional = false): Type {
    const type = this.#bindings.substitute(this.#typeOf(operand));
    const result = this.#findFieldTypeOf(expression, unwrapOptional(type), field);
    return isOptional || types.isOptional(type) ? types.optionalOf(result) : result;
  }

  #findFieldTypeOf(expression: Expression, type: Type, field: string): Type {
    if (type.kind === "map") return type.parameters[1] as Type;
    if (type.kind === "struct") return this.#findStructField(expression, type.name, field) ?? types.error;
    if (type.kind === "parameter") this.#bindings.isAssignable([types.dyn], [type]);
    else if (!isDynOrError(type))
      this.#report(expression, `type '${types.formatType(type)}' does not support field selection`);
    return types.dyn;
  }

  #findStructField({ offset }: { offset: number }, name: string, field: string): Type | undefined {
    const struct = this.#environment.findStruct(name);
    const type = struct?.findField(field);
    if (!struct) this.#report({ offset }, `unexpected failed resolution of '${name}'`);
    else if (!type) this.#report({ offset }, `undefined field '${field}'`);
    return type;
  }

  #checkCall(expression: Call): Expression {
    const call = { ...expression, arguments: expression.arguments.map((argument) => this.check(argument)) };
    if (!call.target) {
      const declaration = this.#findFunction(call.function);
      if (declaration) return this.#resolveOverload({ ...call, function: declaration.name }, declaration);
      this.#types.set(call.id, types.error);
      this.#reportUndeclared(call, call.function);
      return call;
    }
    const prefix = toQualifiedName(call.target);
    const inNamespace = prefix === undefined ? undefined : this.#findFunction(`${prefix}.${call.function}`);
    if (inNamespace)
      return this.#resolveOverload({ ...call, function: inNamespace.name, target: undefined }, inNamespace);
    const withTarget = { ...call, target: this.check(call.target) };
    const declaration = this.#findFunction(call.function);
    if (declaration) return this.#resolveOverload(withTarget, declaration);
    this.#types.set(call.id, types.error);
    this.#reportUndeclared(call, call.function);
    return withTarget;
  }

  /** Sets the type of a call by the overloads that fit its arguments. */
  #resolveOverload(call: Call, declaration: FunctionDeclaration): Expression {
    const given = [...(call.target ? [call.target] : []), ...call.arguments].map((argument) => this.#typeOf(argument));
    const isMember = call.target !== undefined;
    const candidates = declaration.overloads.filter((overload) => overload.isMember === isMember);
    if (call.function === "_&&_" || call.function === "_||_") return this.#resolveLogic(call, given, candidates);
    const overloads: string[] = [];
    let result: Type | undefined;
    for (const candidate of candidates) {
      const signature = this.#createSignature(candidate);
      if (!this.#bindings.isAssignable(given, signature.slice(1))) continue;
      overloads.push(candidate.id);
      const next = this.#bindings.substitute(signature[0] as Type);
      result ??= next;
      if (result.kind !== "dyn" && !types.isSameType(result, next)) result = types.dyn;
    }
    this.#types.set(call.id, result ?? types.error);
    if (result) this.#references.set(call.id, { overloads });
    else {
      const texts = given.map((type) => types.formatType(this.#bindings.substitute(type, true)));
      const applied = isMember ? `${texts[0]}.(${texts.slice(1).join(", ")})` : `(${texts.join(", ")})`;
      this.#report(call, `found no matching overload for '${declaration.name}' applied to '${applied}'`);
    }
    return call;
  }

  #resolveLogic(call: Call, given: readonly Type[], [overload]: readonly Overload[]): Expression {
    const before = this.issues.length;
    for (const [index, argument] of call.arguments.entries()) {
      const type = given[index] as Type;
      if (!this.#bindings.isAssignable([type], [types.bool])) this.#reportMismatch(argument, types.bool, type);
    }
    const isValid = overload && this.issues.length === before;
    this.#types.set(call.id, isValid ? types.bool : types.error);
    if (isValid) this.#references.set(call.id, { overloads: [overload.id] });
    return call;
  }

  /** Returns the types of a function's result and parameters, with type parameters that are used nowhere else. */
  #createSignature({ result, parameters }: Overload): Type[] {
    const replacements = new Map<string, Type>();
    const collect = (type: Type) => {
      if (type.kind === "parameter" && !replacements.has(type.name)) replacements.set(type.name, this.#createFree());
      type.parameters.forEach(collect);
    };
    const signature = [result, ...parameters];
    signature.forEach(collect);
    return replacements.size === 0 ? signature : signature.map((type) => replaceParameters(type, replacements));
  }

  #createFree(): Type {
    return types.parameter(`_var${this.#freeParameters++}`);
  }

  #checkList(expression: Kind<"list">): Expression {
    let common: Type | undefined;
    const elements = expression.elements.map((element) => {
      const value = this.check(element.value);
      common = this.#joinTypes(common, this.#findElementType(value, element.isOptional));
      return { ...element, value };
    });
    this.#types.set(expression.id, types.listOf(common ?? this.#createFree()));
    return { ...expression, elements };
  }

  #checkMap(expression: Kind<"map">): Expression {
    let keys: Type | undefined;
    let values: Type | undefined;
    const entries = expression.entries.map((entry) => {
      const key = this.check(entry.key);
      keys = this.#joinTypes(keys, this.#typeOf(key));
      const value = this.check(entry.value);
      values = this.#joinTypes(values, this.#findElementType(value, entry.isOptional));
      return { ...entry, key, value };
    });
    keys ??= this.#createFree();
    values ??= this.#createFree();
    this.#types.set(expression.id, types.mapOf(keys, values));
    return { ...expression, entries };
  }

  /** Returns the type of a value in a literal; an optional one counts without its optional. */
  #findElementType(value: Expression, isOptional: boolean): Type {
    const type = this.#typeOf(value);
    if (!isOptional) return type;
    if (!types.isOptional(type) && type.kind !== "dyn") this.#reportMismatch(value, types.optionalOf(type), type);
    return unwrapOptional(type);
  }

  #joinTypes(previous: Type | undefined, current: Type): Type {
    if (!previous) return current;
    return this.#bindings.isAssignable([previous], [current]) ? findMoreGeneral(previous, current) : types.dyn;
  }

  #checkStruct(expression: Kind<"struct">): Expression {
    const found = this.#findName(expression.name);
    if (!found) {
      this.#types.set(expression.id, types.error);
      this.#reportUndeclared(expression, expression.name);
      return expression;
    }
    this.#references.set(expression.id, { name: found.name });
    this.#types.set(expression.id, this.#findStructType(expression, found.type));
    const fields = expression.fields.map((field) => {
      const value = this.check(field.value);
      const type = this.#findStructField(field, found.name, field.name) ?? types.error;
      const given = this.#findElementType(value, field.isOptional);
      if (!this.#bindings.isAssignable([type], [given])) {
        const [wanted, present] = [types.formatType(type), types.formatType(given)];
        this.#report(field, `expected type of field '${field.name}' is '${wanted}' but provided type is '${present}'`);
      }
      return { ...field, value };
    });
    return { ...expression, name: found.name, fields };
  }

  /** Returns the type of a message literal whose name has a type. */
  #findStructType(expression: Expression, named: Type): Type {
    if (named.kind === "error") return types.error;
    const type = named.kind === "type" ? named.parameters[0] : undefined;
    if (type?.kind === "struct") return type;
    this.#report(expression, type ? `'${type.name}' is not a message type` : `'${named.name}' is not a type`);
    return types.error;
  }

  #checkComprehension(expression: Kind<"comprehension">): Expression {
    const range = this.check(expression.range);
    const initial = this.check(expression.initial);
    const rangeType = this.#bindings.substitute(this.#typeOf(range));
    const accumulated = this.#typeOf(initial);
    const outer = this.#scope;
    const around: Scope = { variables: new Map([[expression.accumulator, accumulated]]), outer };
    this.#scope = { variables: this.#findLoopVariables(expression, rangeType), outer: around };
    const condition = this.check(expression.condition);
    this.#requireType(condition, types.bool);
    const step = this.check(expression.step);
    this.#requireType(step, accumulated);
    this.#scope = around;
    const result = this.check(expression.result);
    this.#scope = outer;
    this.#types.set(expression.id, this.#bindings.substitute(this.#typeOf(result)));
    return { ...expression, range, initial, condition, step, result };
  }

  #findLoopVariables(expression: Kind<"comprehension">, range: Type): ReadonlyMap<string, Type> {
    const { variable, secondVariable } = expression;
    let [first, second] = range.parameters;
    if (range.kind === "list") {
      if (secondVariable !== undefined) [first, second] = [types.int, first];
    } else if (range.kind === "parameter" || isDynOrError(range)) {
      this.#bindings.isAssignable([types.dyn], [range]);
      first = second = types.dyn;
    } else if (range.kind !== "map") {
      const text = types.formatType(range);
      const message = `expression of type '${text}' cannot be range of a comprehension (must be list, map, or dynamic)`;
      this.#report(expression.range, message);
      first = second = types.error;
    }
    const variables = new Map([[variable, first as Type]]);
    if (secondVariable !== undefined && secondVariable !== variable) variables.set(secondVariable, second as Type);
    return variables;
  }

  #requireType(expression: Expression, wanted: Type): void {
    const given = this.#typeOf(expression);
    if (!this.#bindings.isAssignable([wanted], [given])) this.#reportMismatch(expression, wanted, given);
  }

  #typeOf(expression: Expression): Type {
    return this.#types.get(expression.id) ?? types.error;
  }

  /** Returns an identifier in place of an expression, if its name is that of a variable or type. */
  #resolveName({ id, offset }: Expression, name: string): Expression | undefined {
    const found = this.#findName(name);
    if (!found) return undefined;
    this.#types.set(id, found.type);
    this.#references.set(id, { name: found.name });
    return { id, offset, kind: "identifier", name: found.name };
  }

  #findName(written: string): { name: string; type: Type } | undefined {
    const name = removeDot(written);
    for (let scope = this.#scope; scope; scope = scope.outer) {
      const type = scope.variables.get(name);
      if (type) return { name, type };
    }
    const type = this.#environment.variables.get(name) ?? this.#findNamedType(name);
    return type && { name, type };
  }

  #findNamedType(name: string): Type | undefined {
    const type = namedTypes.get(name) ?? namedTypesWithoutValue.get(name);
    if (type) return types.typeOf(type);
    return this.#environment.findStruct(name) && types.typeOf(types.struct(name));
  }

  #findFunction(written: string): FunctionDeclaration | undefined {
    return this.#environment.functions.get(removeDot(written));
  }

  #reportUndeclared(expression: Expression, name: string): void {
    this.#report(expression, `undeclared reference to '${name}' (in container '')`);
  }

  #reportMismatch(expression: Expression, expected: Type, found: Type): void {
    this.#report(expression, formatMismatch(expected, found));
  }

  #report({ offset }: { readonly offset: number }, message: string): void {
    this.#bindings.countSteps(message.length);
    this.issues.push({ offset, message });
  }
}

/** A name that begins with a dot isn't looked up in a namespace; there is none. */
const removeDot = (name: string): string => (name.startsWith(".") ? name.slice(1) : name);

/** Returns the name that selections from an identifier spell, such as `a.b.c`. */
const toQualifiedName = (expression: Expression): string | undefined => {
  if (expression.kind === "identifier") return expression.name;
  if (expression.kind !== "select" || expression.isTest) return undefined;
  const prefix = toQualifiedName(expression.operand);
  return prefix === undefined ? undefined : `${prefix}.${expression.field}`;
};

const mostIssues = 100;
const mostSnippetBytes = 16_384;

/** Returns upstream's text of issues: each with its line of the expression, and a caret below. */
export const formatIssues = (issues: readonly Issue[], text: string): string => {
  const lines = text.split("\n");
  const formatted = issues
    .slice(0, mostIssues)
    .sort((left, right) => left.offset - right.offset)
    .map((issue) => formatIssue(issue, lines));
  const left = issues.length - mostIssues;
  return [...formatted, ...(left > 0 ? [`${left} more errors were truncated`] : [])].join("\n");
};

/** An issue with a negative offset has no place in the text; one of an empty text has upstream's column 0. */
const formatIssue = ({ offset, message }: Issue, lines: readonly string[]): string => {
  if (offset < 0) return `ERROR: <input>:-1:0: ${message}`;
  if (lines.length === 1 && lines[0] === "") return `ERROR: <input>:1:0: ${message}`;
  let [index, column] = [0, offset];
  for (; index < lines.length - 1; index++) {
    const length = countCodePoints(lines[index] as string) + 1;
    if (column < length) break;
    column -= length;
  }
  const line = (lines[index] as string).replaceAll("\t", " ");
  const first = `ERROR: <input>:${index + 1}:${column + 1}: ${message}`;
  if (Buffer.byteLength(line) > mostSnippetBytes) return first;
  const characters = [...line];
  const dots = characters.slice(0, column).map((character) => (isWide(character) ? "\uff0e" : "."));
  const caret = isWide(characters[column] ?? "") ? "\uff3e" : "^";
  return `${first}\n | ${line}\n | ${dots.join("")}${caret}`;
};

const isWide = (character: string): boolean => character > "\x7f";

/** Returns the type of the value that an optional has; other types as they are. */
const unwrapOptional = (type: Type): Type => (types.isOptional(type) ? (type.parameters[0] as Type) : type);
