import { AwsError } from "./aws-service.ts";

// Computes CloudWatch's metric math. It knows only the syntax that Postern's alarms and dashboards use: `+`, `*`, `/`,
// brackets, numbers, ids and FILL.

/** The values of a metric by the second at which their period begins. */
export type TimeSeries = ReadonlyMap<number, number>;

type Operand = TimeSeries | number;

const operators: Record<string, (left: number, right: number) => number> = {
  "+": (left, right) => left + right,
  "*": (left, right) => left * right,
  "/": (left, right) => left / right,
};

const createInvalid = (message: string) => new AwsError(400, "ValidationError", message);

/** Returns the ids in an expression. */
export const listIds = (expression: string): string[] => [...new Set(expression.match(/\b[a-z]\w*/g) ?? [])];

/** Computes an expression for the periods that begin at these seconds. `readId` returns the values of a metric. */
export const computeExpression = (
  expression: string,
  readId: (id: string) => TimeSeries,
  seconds: readonly number[],
): TimeSeries => {
  const tokens = expression.match(/\d+(?:\.\d+)?|\w+|\S/g) ?? [];
  const take = () => tokens.shift() ?? "";
  const requireToken = (token: string) => {
    const found = take();
    if (found !== token) throw createInvalid(`${expression} has "${found}" in the place of "${token}"`);
  };
  const parseFactor = (): Operand => {
    const token = take();
    if (/^\d/.test(token)) return Number(token);
    if (/^[a-z]/.test(token)) return readId(token);
    if (token === "(") {
      const inner = parseSum();
      requireToken(")");
      return inner;
    }
    if (token !== "FILL") throw createInvalid(`the stand-in of CloudWatch doesn't know "${token}" in ${expression}`);
    requireToken("(");
    const series = parseSum();
    requireToken(",");
    const filler = parseSum();
    requireToken(")");
    if (typeof series === "number" || typeof filler !== "number")
      throw createInvalid(`FILL takes a metric and a number: ${expression}`);
    return new Map(seconds.map((second) => [second, series.get(second) ?? filler]));
  };
  const parseChain = (symbols: string[], parseOperand: () => Operand): Operand => {
    let left = parseOperand();
    while (symbols.includes(tokens[0] ?? "")) left = combine(take(), left, parseOperand());
    return left;
  };
  const parseProduct = () => parseChain(["*", "/"], parseFactor);
  const parseSum = (): Operand => parseChain(["+"], parseProduct);
  const result = parseSum();
  if (tokens.length > 0) throw createInvalid(`${expression} has "${tokens[0]}" after its end`);
  if (typeof result === "number") throw createInvalid(`${expression} is a number and not a time series`);
  return result;
};

/** Applies an operator as CloudWatch does: a missing value of a series is 0, and a division by 0 gives no value. */
const combine = (symbol: string, left: Operand, right: Operand): Operand => {
  const compute = operators[symbol] ?? (() => Number.NaN);
  if (typeof left === "number" && typeof right === "number") return compute(left, right);
  const read = (operand: Operand, time: number) => (typeof operand === "number" ? operand : (operand.get(time) ?? 0));
  const times = new Set([left, right].flatMap((operand) => (typeof operand === "number" ? [] : [...operand.keys()])));
  const values = [...times].map((time) => [time, compute(read(left, time), read(right, time))] as const);
  return new Map(values.filter(([, value]) => Number.isFinite(value)));
};
