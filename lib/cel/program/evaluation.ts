import { nameGoType } from "../go-types.ts";
import { CelMap, EvaluationError, getType, Optional, type TypedTest, type Value } from "../values.ts";

export interface Variables {
  /** Returns a variable's value, which may be computed only now; undefined if there is none. */
  find(name: string): Value | undefined;
  /** Reports whether a map or a list is part of a typed object of upstream. Without it, none is. */
  readonly isTyped?: TypedTest;
}

/** A value, or the error that takes its place until something absorbs it. */
export type Result = Value | EvaluationError;

export type Evaluator = (frame: Frame) => Result;

/** Ten times the rounds of the longest loops that cost something. */
const mostRounds = 10_000_000;

/** The bytes that a cost of 1 pays for. A function reads ten characters for it, which are 20 bytes; this is twice that. */
const bytesPerCost = 40;
/** The most bytes that functions allocate beyond what their costs pay for. */
const mostUnpaidBytes = 2 ** 25;

/** Returns about how many bytes a list, a map, bytes or a text take, without what is in it. */
const measure = (value: Result): number => {
  if (typeof value === "string") return 2 * value.length;
  if (Array.isArray(value)) return 8 * value.length;
  if (value instanceof Uint8Array) return value.length;
  return value instanceof CelMap ? 100 * value.entries.size : 0;
};

/** The state of one evaluation. */
export class Frame {
  cost = 0;
  readonly variables: Variables;
  readonly limit: number;
  readonly hasStrictOptionals: boolean;
  /** The variables of loops. That of a result is undefined until it is used first. */
  readonly slots: (Result | undefined)[];
  #rounds = 0;
  #unpaidBytes = 0;

  constructor(variables: Variables, limit: number, slots: number, hasStrictOptionals = true) {
    this.hasStrictOptionals = hasStrictOptionals;
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

  /**
   * Counts the memory of a function's result if its cost doesn't pay for it: the cost of `flatten`, for example,
   * ignores inner lists. A result that is an argument, or the value of an optional argument, isn't new. If there are
   * several arguments, a text counts as new even if it equals one of them.
   */
  countBytes(result: Result, cost: number, args: readonly Value[]): void {
    const unpaid = measure(result) - bytesPerCost * cost;
    if (unpaid <= 0) return;
    const compared = typeof result === "string" && args.length > 1 ? [] : args;
    if (compared.some((value) => value === result || (value instanceof Optional && value.value === result))) return;
    this.#unpaidBytes += unpaid;
    if (this.#unpaidBytes > mostUnpaidBytes) throw new Interruption("operation interrupted");
  }

  /** Counts the rounds of loops, which may cost nothing. Upstream stops when the time of a request is over. */
  countRound(): void {
    if (++this.#rounds > mostRounds) throw new Interruption("operation interrupted");
  }
}

/** An error that ends an evaluation: unlike others, `||` and `&&` don't absorb it. */
export class Interruption extends Error {}

/** Returns the result of a function, or the evaluation error that the function throws. */
export const attempt = <Input>(run: (input: Input) => Result, input: Input): Result => {
  try {
    return run(input);
  } catch (error) {
    return toResult(error);
  }
};

export const toResult = (error: unknown): EvaluationError => {
  if (error instanceof EvaluationError) return error;
  throw error;
};

const unhashableTypes = new Set(["bytes", "kubernetes.NamedFormat", "kubernetes.Semver"]);

/** Ends the evaluation if Go can't use the value as a key of a map. The message for `isDeleted` differs. */
export const requireHashable = (value: Value, isDeleted = false): void => {
  if (typeof value !== "object" || !unhashableTypes.has(getType(value).name)) return;
  const problem = isDeleted ? "hash of unhashable type:" : "runtime error: hash of unhashable type";
  throw new Interruption(`internal error: ${problem} ${nameGoType(value)}`);
};

/** Returns an argument for the computation of costs. An error is undefined; it has the size 1. */
export const toArgument = (value: Result): Value =>
  value instanceof EvaluationError ? (undefined as unknown as Value) : value;
