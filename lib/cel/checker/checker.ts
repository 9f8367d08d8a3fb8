import { type Environment, namedTypes, namedTypesWithoutValue } from "../environment.ts";
import type { FunctionDeclaration, Overload } from "../functions.ts";
import { type Expression, type Issue, removeDot } from "../parser/syntax.ts";
import type { Type } from "../types.ts";
import * as types from "../types.ts";
import { countCodePoints, getType } from "../values.ts";
import { findInvalidLiterals, formatMismatch } from "./literals.ts";
import { findMoreGeneral, isDynOrError, replaceParameters, TooManySteps, TypeBindings } from "./type-bindings.ts";

/** An expression with its types, and with the meaning of its names. */
export interface CheckedExpression {
  readonly expression: Expression;
  readonly type: Type;
  /** The types of the expression and its parts. If `a.b` is one name, its part `a` has no type. */
  readonly types: ReadonlyMap<Expression, Type>;
  /** What names, calls and message literals refer to. `a.b` can be a name, and `a.b(c)` a call of function `a.b`. */
  readonly references: ReadonlyMap<Expression, Reference>;
}

/** A reference to a variable, to a type, or to a function. `overloads` has the ids of overloads that fit the types. */
interface Reference {
  readonly name: string;
  readonly overloads?: readonly string[];
}

/** Finds the types of an expression and of its parts. Returns issues if they are wrong. */
export const check = (expression: Expression, environment: Environment): CheckedExpression | readonly Issue[] => {
  const checker = new Checker(environment);
  try {
    checker.check(expression);
    if (checker.issues.length > 0) return checker.issues;
    const checked = checker.finish(expression);
    const issues = findInvalidLiterals(expression, checked.types, environment);
    return issues.length > 0 ? issues : checked;
  } catch (thrown) {
    if (!(thrown instanceof TooManySteps)) throw thrown;
    return [{ offset: expression.offset, message: "the types of the expression are too large" }];
  }
};

type Kind<Name extends Expression["kind"]> = Extract<Expression, { kind: Name }>;
type Call = Kind<"call">;
type Place = Pick<Issue, "offset">;

/** The variables of a macro, and the scope around it. */
interface Scope {
  readonly variables: ReadonlyMap<string, Type>;
  readonly outer: Scope | undefined;
}

/** Does the same steps as upstream's checker. Their order has an effect on errors and on the types of empty lists. */
class Checker {
  readonly issues: Issue[] = [];
  readonly #environment: Environment;
  readonly #types = new Map<Expression, Type>();
  readonly #references = new Map<Expression, Reference>();
  readonly #bindings = new TypeBindings();
  #scope: Scope | undefined;
  #freeParameters = 0;

  constructor(environment: Environment) {
    this.#environment = environment;
  }

  finish(expression: Expression): CheckedExpression {
    const finalTypes = new Map<Expression, Type>();
    for (const [part, type] of this.#types) finalTypes.set(part, this.#bindings.substitute(type, /* isFinal */ true));
    return {
      expression,
      type: finalTypes.get(expression) ?? types.dyn,
      types: finalTypes,
      references: this.#references,
    };
  }

  /** Finds the type of an expression and of its parts. */
  check(expression: Expression): Type {
    const type = this.#findType(expression);
    this.#types.set(expression, type);
    return type;
  }

  #findType(expression: Expression): Type {
    switch (expression.kind) {
      case "literal":
        return getType(expression.value);
      case "identifier":
        return this.#resolveName(expression, expression.name) ?? this.#reportUndeclared(expression, expression.name);
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

  #checkSelect(expression: Kind<"select">): Type {
    const name = toQualifiedName(expression);
    const resolved = name === undefined ? undefined : this.#resolveName(expression, name);
    if (resolved) return resolved;
    const type = this.#findFieldType(expression, this.check(expression.operand), expression.field);
    return expression.isTest ? types.bool : this.#bindings.substitute(type);
  }

  #checkOptionalSelect(expression: Call): Type {
    const [operand, field] = expression.arguments as [Expression, Kind<"literal">];
    const type = this.#findFieldType(expression, this.check(operand), String(field.value), true);
    this.#references.set(expression, { name: expression.function, overloads: ["select_optional_field"] });
    return this.#bindings.substitute(type);
  }

  /** Returns the type of `operand.field`; with `isOptional`, of `operand.?field`. */
  #findFieldType(expression: Expression, operand: Type, field: string, isOptional = false): Type {
    const type = this.#bindings.substitute(operand);
    const result = this.#findFieldTypeOf(expression, unwrapOptional(type), field);
    return isOptional || types.isOptional(type) ? types.optionalOf(result) : result;
  }

  #findFieldTypeOf(expression: Expression, type: Type, field: string): Type {
    if (type.kind === "map") return type.parameters[1] as Type;
    if (type.kind === "struct") return this.#findStructField(expression, type.name, field);
    if (type.kind === "parameter") this.#bindings.isAssignable([types.dyn], [type]);
    else if (!isDynOrError(type))
      this.#report(expression, `type '${types.formatType(type)}' does not support field selection`);
    return types.dyn;
  }

  #findStructField(place: Place, name: string, field: string): Type {
    const struct = this.#environment.findStruct(name);
    if (!struct) return this.#report(place, `unexpected failed resolution of '${name}'`);
    return struct.findField(field) ?? this.#report(place, `undefined field '${field}'`);
  }

  #checkCall(call: Call): Type {
    const argumentTypes = call.arguments.map((argument) => this.check(argument));
    const prefix = call.target && toQualifiedName(call.target);
    const inNamespace = prefix === undefined ? undefined : this.#findFunction(`${prefix}.${call.function}`);
    if (inNamespace) return this.#resolveOverload(call, inNamespace, argumentTypes, false);
    if (call.target) argumentTypes.unshift(this.check(call.target));
    const declaration = this.#findFunction(call.function);
    if (!declaration) return this.#reportUndeclared(call, call.function);
    if (call.function === "_&&_" || call.function === "_||_") return this.#resolveLogic(call, argumentTypes);
    return this.#resolveOverload(call, declaration, argumentTypes, call.target !== undefined);
  }

  /** Returns the type of a call: the common type of the overloads that fit its arguments, or else dyn. */
  #resolveOverload(
    call: Call,
    { name, overloads }: FunctionDeclaration,
    argumentTypes: readonly Type[],
    isMember: boolean,
  ): Type {
    const fitting: string[] = [];
    let result: Type | undefined;
    for (const candidate of overloads) {
      if (candidate.isMember !== isMember) continue;
      const signature = this.#createSignature(candidate);
      if (!this.#bindings.isAssignable(argumentTypes, signature.slice(1))) continue;
      fitting.push(candidate.id);
      const next = this.#bindings.substitute(signature[0] as Type);
      result ??= next;
      if (result.kind !== "dyn" && !types.isSameType(result, next)) result = types.dyn;
    }
    if (result) {
      this.#references.set(call, { name, overloads: fitting });
      return result;
    }
    const texts = argumentTypes.map((type) => types.formatType(this.#bindings.substitute(type, true)));
    const applied = isMember ? `${texts[0]}.(${texts.slice(1).join(", ")})` : `(${texts.join(", ")})`;
    return this.#report(call, `found no matching overload for '${name}' applied to '${applied}'`);
  }

  #resolveLogic(call: Call, argumentTypes: readonly Type[]): Type {
    const before = this.issues.length;
    for (const [index, argument] of call.arguments.entries())
      this.#requireType(argument, types.bool, argumentTypes[index] as Type);
    return this.issues.length === before ? types.bool : types.error;
  }

  /** Returns the types of an overload's result and parameters. They have new type parameters for this call. */
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

  #checkList({ elements }: Kind<"list">): Type {
    let common: Type | undefined;
    for (const element of elements) common = this.#joinTypes(common, this.#checkElement(element));
    return types.listOf(common ?? this.#createFree());
  }

  #checkMap({ entries }: Kind<"map">): Type {
    let keys: Type | undefined;
    let values: Type | undefined;
    for (const entry of entries) {
      keys = this.#joinTypes(keys, this.check(entry.key));
      values = this.#joinTypes(values, this.#checkElement(entry));
    }
    keys ??= this.#createFree();
    return types.mapOf(keys, values ?? this.#createFree());
  }

  /** Returns the type of a value in a literal; for an optional element, such as `?x`, of the optional's value. */
  #checkElement({ value, isOptional }: { readonly value: Expression; readonly isOptional: boolean }): Type {
    const type = this.check(value);
    if (!isOptional) return type;
    if (!types.isOptional(type) && type.kind !== "dyn") this.#reportMismatch(value, types.optionalOf(type), type);
    return unwrapOptional(type);
  }

  #joinTypes(previous: Type | undefined, current: Type): Type {
    if (!previous) return current;
    return this.#bindings.isAssignable([previous], [current]) ? findMoreGeneral(previous, current) : types.dyn;
  }

  #checkStruct(expression: Kind<"struct">): Type {
    const name = removeDot(expression.name);
    const type = this.#findNamedType(name)?.parameters[0];
    if (!type) return this.#reportUndeclared(expression, expression.name);
    this.#references.set(expression, { name });
    if (type.kind !== "struct") this.#report(expression, `'${type.name}' is not a message type`);
    for (const field of expression.fields) {
      const argumentTypes = this.#checkElement(field);
      if (type.kind !== "struct") continue;
      const wanted = this.#findStructField(field, name, field.name);
      if (this.#bindings.isAssignable([wanted], [argumentTypes])) continue;
      const [expected, present] = [types.formatType(wanted), types.formatType(argumentTypes)];
      this.#report(field, `expected type of field '${field.name}' is '${expected}' but provided type is '${present}'`);
    }
    return type.kind === "struct" ? type : types.error;
  }

  #checkComprehension(expression: Kind<"comprehension">): Type {
    const range = this.#bindings.substitute(this.check(expression.range));
    const accumulated = this.check(expression.initial);
    const outer = this.#scope;
    const around: Scope = { variables: new Map([[expression.accumulator, accumulated]]), outer };
    this.#scope = { variables: this.#findLoopVariables(expression, range), outer: around };
    this.#requireType(expression.condition, types.bool, this.check(expression.condition));
    this.#requireType(expression.step, accumulated, this.check(expression.step));
    this.#scope = around;
    const result = this.check(expression.result);
    this.#scope = outer;
    return this.#bindings.substitute(result);
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
      first = second = this.#report(expression.range, message);
    }
    const variables = new Map([[variable, first as Type]]);
    if (secondVariable !== undefined && secondVariable !== variable) variables.set(secondVariable, second as Type);
    return variables;
  }

  #requireType(expression: Expression, wanted: Type, actual: Type): void {
    if (!this.#bindings.isAssignable([wanted], [actual])) this.#reportMismatch(expression, wanted, actual);
  }

  /** Returns the type of a name; undefined if there is no variable or type with this name. */
  #resolveName(expression: Expression, written: string): Type | undefined {
    const found = this.#findName(written);
    if (found) this.#references.set(expression, { name: found.name });
    return found?.type;
  }

  /** Finds a name's type. The resolved name begins with a dot if it is global, but a macro's variable hides it. */
  #findName(written: string): { name: string; type: Type } | undefined {
    const name = removeDot(written);
    const [first = ""] = name.split(".", 1);
    let scope = this.#scope;
    while (scope && !scope.variables.has(first)) scope = scope.outer;
    if (scope && name === written) {
      const type = scope.variables.get(name);
      return type && { name, type };
    }
    const type = this.#environment.variables.get(name) ?? this.#findNamedType(name);
    return type && { name: scope ? `.${name}` : name, type };
  }

  #findNamedType(name: string): Type | undefined {
    const type = namedTypes.get(name) ?? namedTypesWithoutValue.get(name);
    if (type) return types.typeOf(type);
    return this.#environment.findStruct(name) && types.typeOf(types.struct(name));
  }

  #findFunction(written: string): FunctionDeclaration | undefined {
    return this.#environment.functions.get(removeDot(written));
  }

  #reportUndeclared(expression: Expression, name: string): Type {
    return this.#report(expression, `undeclared reference to '${name}' (in container '')`);
  }

  #reportMismatch(expression: Expression, expected: Type, found: Type): void {
    this.#report(expression, formatMismatch(expected, found));
  }

  /** Adds an issue. Returns the type that an expression with an error has. */
  #report({ offset }: Place, message: string): Type {
    this.#bindings.countSteps(message.length);
    this.issues.push({ offset, message });
    return types.error;
  }
}

/** Returns the name that an identifier and its selections form, such as `a.b.c`; undefined for other expressions. */
const toQualifiedName = (expression: Expression): string | undefined => {
  if (expression.kind === "identifier") return expression.name;
  if (expression.kind !== "select" || expression.isTest) return undefined;
  const prefix = toQualifiedName(expression.operand);
  return prefix === undefined ? undefined : `${prefix}.${expression.field}`;
};

const maxIssues = 100;
const maxSnippetBytes = 16_384;

/** Formats issues as upstream does: each with the line of the expression, and a caret below the place. */
export const formatIssues = (issues: readonly Issue[], text: string): string => {
  const lines = text.split("\n");
  const formatted = issues
    .slice(0, maxIssues)
    .sort((left, right) => left.offset - right.offset)
    .map((issue) => formatIssue(issue, lines));
  const left = issues.length - maxIssues;
  return [...formatted, ...(left > 0 ? [`${left} more errors were truncated`] : [])].join("\n");
};

/** Formats an issue. A negative offset concerns no place. In an empty text, the column is 0, as upstream. */
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
  if (Buffer.byteLength(line) > maxSnippetBytes) return first;
  const characters = [...line];
  const dots = characters.slice(0, column).map((character) => (isWide(character) ? "\uff0e" : "."));
  const caret = isWide(characters[column] ?? "") ? "\uff3e" : "^";
  return `${first}\n | ${line}\n | ${dots.join("")}${caret}`;
};

const isWide = (character: string): boolean => character > "\x7f";

/** Returns the value type of an optional type. Returns other types unchanged. */
const unwrapOptional = (type: Type): Type => (types.isOptional(type) ? (type.parameters[0] as Type) : type);
