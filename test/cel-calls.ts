import assert from "node:assert/strict";
import type { FunctionDeclaration, Overload } from "../lib/cel/functions.ts";
import { parse } from "../lib/cel/parser.ts";
import type { Expression } from "../lib/cel/syntax.ts";
import type { Type } from "../lib/cel/types.ts";
import {
  CelMap,
  EvaluationError,
  getType,
  isEqual,
  isMap,
  listEntries,
  Optional,
  type Value,
} from "../lib/cel/values.ts";

/** What an expression gave; `cost` is that of its calls and variables. */
export interface CallOutcome {
  value?: unknown;
  error?: string;
  cost: number;
}

/** Evaluates an expression of literals, variables, `==` and calls of the functions of a library. */
export const evaluateCalls = (
  text: string,
  functions: readonly FunctionDeclaration[],
  variables: Readonly<Record<string, Value>> = {},
): CallOutcome => {
  const expression = parse(text, []);
  assert.ok(!Array.isArray(expression), text);
  const calls = new Calls(functions, variables);
  try {
    return { value: toPlain(calls.evaluate(expression as Expression)), cost: calls.cost };
  } catch (error) {
    if (!(error instanceof EvaluationError)) throw error;
    return { error: error.message, cost: calls.cost };
  }
};

class Calls {
  cost = 0;
  readonly #functions: readonly FunctionDeclaration[];
  readonly #variables: Readonly<Record<string, Value>>;
  constructor(functions: readonly FunctionDeclaration[], variables: Readonly<Record<string, Value>>) {
    this.#functions = functions;
    this.#variables = variables;
  }

  evaluate(expression: Expression): Value {
    if (expression.kind === "literal") return expression.value;
    if (expression.kind === "identifier") {
      this.cost++;
      return this.#variables[expression.name] as Value;
    }
    assert.equal(expression.kind, "call");
    if (expression.kind !== "call") return null;
    const { function: name, target, arguments: args } = expression;
    if (target?.kind === "identifier" && !Object.hasOwn(this.#variables, target.name))
      return this.call(`${target.name}.${name}`, false, args);
    return this.call(name, target !== undefined, target ? [target, ...args] : args);
  }

  /** Calls a function. As upstream, it evaluates all arguments, and counts the cost of a call that an error prevents. */
  call(name: string, isMember: boolean, expressions: readonly Expression[]): Value {
    let fault: unknown;
    const args = expressions.map((expression) => {
      try {
        return this.evaluate(expression);
      } catch (error) {
        fault ??= error;
        return null;
      }
    });
    const found = this.#functions.filter((declaration) => declaration.name === name);
    const calls = found.flatMap(({ overloads, cost }) => overloads.map((overload) => ({ overload, cost })));
    const call = calls.find(
      ({ overload }) => overload.isMember === isMember && fits(overload, args, fault !== undefined),
    );
    const [left = null, right = null] = args;
    // Upstream computes what dyn makes of a literal only once.
    const isFolded = name === "dyn" && expressions[0]?.kind === "literal";
    this.cost += isFolded ? 0 : (call?.cost?.(args, null, call.overload.id) ?? 1);
    if (fault) throw fault;
    if (name === "dyn") return left;
    if (name === "_==_") return isEqual(left, right);
    if (name === "value" && left instanceof Optional && left.value !== undefined) return left.value;
    if (!call) throw new EvaluationError(`no such overload: ${name}`);
    return call.overload.evaluate?.(...args) ?? null;
  }
}

const fits = ({ parameters }: Overload, args: readonly Value[], isFailed: boolean) =>
  parameters.length === args.length &&
  parameters.every((type, index) => (isFailed && args[index] === null) || isOf(args[index] as Value, type));
const isOf = (value: Value, { name }: Type) => getType(value).name === name;

const toPlain = (value: Value): unknown => {
  if (value instanceof Optional) return value.value === undefined ? "none" : { optional: toPlain(value.value) };
  if (value instanceof CelMap)
    return Object.fromEntries([...listEntries(value)].map(([key, one]) => [String(key), toPlain(one)]));
  if (Array.isArray(value)) return value.map(toPlain);
  if (isMap(value)) return value;
  if (typeof value === "object" && value !== null && "value" in value) return value.value;
  return value;
};
