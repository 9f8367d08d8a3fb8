import { isMap } from "../../json.ts";
import type { Condition } from "../types.ts";
import { calculated, compareDecimals, type Decimal, isDecimal, numberOf, parsePercentage } from "./decimals.ts";
import { compareBytes, shown, typeOf } from "./texts.ts";

type Given = { value: unknown } | undefined;

/** Reports whether a condition holds; if a value that it needs is missing, only NotExist holds. */
export const isHit = (condition: Condition, data: Given, comparison: Given): boolean => {
  const { cond, valueProcess } = condition;
  if (cond === "Exist" || cond === "NotExist") return (cond === "Exist") === (data !== undefined);
  const test = typeof cond === "string" && Object.hasOwn(tests, cond) ? tests[cond] : undefined;
  if (test === undefined) throw new Error(`cond must be one of ${conds.join(", ")}, not ${shown(cond)}`);
  if (data === undefined || comparison === undefined) return false;
  const isProcessed = valueProcess !== undefined && valueProcess !== null && !cond.endsWith("In");
  return test(data.value, isProcessed ? processed(comparison.value, valueProcess) : comparison.value);
};

type Test = (data: unknown, value: unknown) => boolean;

const tests: Record<Exclude<Condition["cond"], "Exist" | "NotExist">, Test> = {
  Equal: (data, value) => isEqual(data, value),
  NotEqual: (data, value) => !isEqual(data, value),
  In: (data, value) => isIn(data, value),
  NotIn: (data, value) => !isIn(data, value),
  Gt: (data, value) => order(data, value) > 0,
  Gte: (data, value) => order(data, value) >= 0,
  Lt: (data, value) => order(data, value) < 0,
  Lte: (data, value) => order(data, value) <= 0,
};

const conds = [...Object.keys(tests), "Exist", "NotExist"];

const processed = (value: unknown, process: Condition["valueProcess"]): Decimal => {
  if (!isMap(process)) throw new Error("valueProcess must be an object");
  const { operation, operationWith } = process;
  const isWritten = typeof operationWith === "string" || typeof operationWith === "number";
  const other = isWritten ? parsePercentage(operationWith) : undefined;
  if (other === undefined) throw new Error("valueProcess.operationWith must be a number or a percentage such as 50%");
  const number = numberOf(value);
  if (number === undefined) throw new Error(`valueProcess needs a number, and the value is ${kindOf(value)}`);
  const result = calculated(number, operation, other);
  if (result !== undefined) return result;
  throw new Error(
    operation === "/"
      ? "valueProcess.operationWith must not be 0 beside /"
      : `valueProcess.operation must be +, -, * or /, not ${shown(operation)}`,
  );
};

const isIn = (data: unknown, values: unknown): boolean => {
  if (!Array.isArray(values)) throw new Error(`In and NotIn need a list, and the value is ${kindOf(values)}`);
  return values.some((value) => isEqual(data, value));
};

/** In levels: deeper values could exhaust the stack. */
const deepest = 1000;

/** Compares numbers by value, even if one of them is a text; two texts must be identical. */
const isEqual = (one: unknown, other: unknown, depth = 0): boolean => {
  if (depth > deepest) throw new Error(`the values are nested deeper than ${deepest} levels`);
  if (isNumber(one) || isNumber(other)) {
    const [first, second] = [numberOf(one), numberOf(other)];
    return first !== undefined && second !== undefined && compareDecimals(first, second) === 0;
  }
  if (Array.isArray(one) && Array.isArray(other))
    return one.length === other.length && one.every((value, index) => isEqual(value, other[index], depth + 1));
  if (!isMap(one) || !isMap(other)) return one === other;
  const keys = Object.keys(one);
  return (
    keys.length === Object.keys(other).length &&
    keys.every((key) => Object.hasOwn(other, key) && isEqual(one[key], other[key], depth + 1))
  );
};

const isNumber = (value: unknown) => typeof value === "number" || isDecimal(value);

/** Returns less than 0 if `one` is smaller. Two texts that are numbers or quantities compare as numbers. */
const order = (one: unknown, other: unknown): number => {
  const [first, second] = [numberOf(one), numberOf(other)];
  if (first !== undefined && second !== undefined) return compareDecimals(first, second);
  if (typeof one === "string" && typeof other === "string") return compareBytes(one, other);
  // The message doesn't quote the values: the user may not be allowed to read their object.
  throw new Error(`${kindOf(one)} and ${kindOf(other)} can't be ordered`);
};

const kindOf = (value: unknown) => (isDecimal(value) ? "a number" : typeOf(value));
