import { nameGoType } from "../go-types.ts";
import { CelMap, EvaluationError, getType, Optional, type TypedTest, type Value } from "../values.ts";

/** The variables of an evaluation. */
export interface Variables {
  /** Returns a variable's value, and may compute it first; undefined if there is no such variable. */
  find(name: string): Value | undefined;
  /**
   * Reports whether a map or a list is part of an object that kube-apiserver evaluates as a struct of Go, and so can't
   * be compared with a value of another type. If the function is absent, no map or list is part of such an object.
   */
  readonly isTyped?: TypedTest;
}

/** A value or an error. An operator such as `||` may ignore the error of an operand. */
export type Result = Value | EvaluationError;

/** The compiled form of a part of an expression. */
export type Evaluator = (frame: Frame) => Result;

/** The most rounds of all loops: ten times the number of rounds that the cost limit allows if each round costs 1. */
const maxRounds = 10_000_000;

/**
 * The bytes that a function may allocate for each 1 of its cost. For a cost of 1, a function reads ten characters: 20
 * bytes. It may allocate twice as much.
 */
const bytesPerCost = 40;
/** The most bytes that functions may allocate in addition to the bytes that their costs pay for. */
const maxUnpaidBytes = 2 ** 25;

/** Returns the approximate bytes of a list, a map, bytes or a text, without the values in it. */
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
  /** Whether optionals behave as in a newer cel-go (see Environment). */
  readonly hasNewerOptionals: boolean;
  /** The variables and accumulators of loops. An accumulator is undefined until it is read for the first time. */
  readonly slots: (Result | undefined)[];
  #rounds = 0;
  #unpaidBytes = 0;

  constructor(variables: Variables, limit: number, slots: number, hasNewerOptionals = true) {
    this.hasNewerOptionals = hasNewerOptionals;
    this.variables = variables;
    this.limit = Math.max(limit, 0);
    this.slots = new Array(slots).fill(undefined);
  }

  charge(cost: number): void {
    this.cost += cost;
    // Upstream's cost is an unsigned number of 64 bits.
    if (this.cost < 0) this.cost += 2 ** 64;
    if (this.cost > this.limit) throw new Interruption("operation cancelled: actual cost limit exceeded");
  }

  /** Charges several steps that cost 1 each. If the limit is exceeded, the cost is that of the first step beyond it. */
  chargeSteps(count: number): void {
    if (this.cost + count > this.limit) this.charge(Math.floor(this.limit) + 1 - this.cost);
    this.cost += count;
  }

  /**
   * Counts the bytes of a function's result that its cost doesn't pay for; the cost of `flatten`, for example, ignores
   * inner lists. A result that is an argument, or the value of an optional argument, isn't counted. But if there are
   * several arguments, a text is always counted, because one that equals an argument may be new, such as `a + ""`.
   */
  countBytes(result: Result, cost: number, args: readonly Value[]): void {
    const unpaid = measure(result) - bytesPerCost * cost;
    if (unpaid <= 0) return;
    const compared = typeof result === "string" && args.length > 1 ? [] : args;
    if (compared.some((value) => value === result || (value instanceof Optional && value.value === result))) return;
    this.#unpaidBytes += unpaid;
    if (this.#unpaidBytes > maxUnpaidBytes) throw new Interruption("operation interrupted");
  }

  /** Counts the rounds of loops, because a round may cost nothing. Upstream limits only the time of a request. */
  countRound(): void {
    if (++this.#rounds > maxRounds) throw new Interruption("operation interrupted");
  }
}

/** An error that ends an evaluation. Unlike an EvaluationError, `||` and `&&` can't ignore it. */
export class Interruption extends Error {}

/** Calls a function. Returns its result, or the EvaluationError that it throws. */
export const attempt = <Input>(run: (input: Input) => Result, input: Input): Result => {
  try {
    return run(input);
  } catch (error) {
    return toResult(error);
  }
};

/** Returns an EvaluationError. Throws any other error. */
export const toResult = (error: unknown): EvaluationError => {
  if (error instanceof EvaluationError) return error;
  throw error;
};

const unhashableTypes = new Set(["bytes", "kubernetes.NamedFormat", "kubernetes.Semver"]);

/** Ends the evaluation if Go can't use a value as a map's key. For `{?value: optional.none()}`, Go deletes that key. */
export const requireHashable = (value: Value, isDeletion = false): void => {
  if (typeof value !== "object" || !unhashableTypes.has(getType(value).name)) return;
  const problem = isDeletion ? "hash of unhashable type:" : "runtime error: hash of unhashable type";
  throw new Interruption(`internal error: ${problem} ${nameGoType(value)}`);
};

/** Converts an argument for the computation of costs. An error becomes undefined, whose size is 1. */
export const toArgument = (value: Result): Value =>
  value instanceof EvaluationError ? (undefined as unknown as Value) : value;
