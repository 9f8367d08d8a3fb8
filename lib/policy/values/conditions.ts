import { isMap, isTextOrNumber } from "../../json.ts";
import type { PolicyCondition } from "../types.ts";
import {
  calculateWithExactFractions,
  compareDecimals,
  type ExactFraction,
  isExactFraction,
  parseDecimalOrPercentage,
  parseDecimalOrQuantity,
} from "./decimals.ts";
import { compareBytes, describeType, quoteValue } from "./texts.ts";

type FoundOrMissing = { value: unknown } | undefined;

/** Reports whether a condition is met. If a value is missing that the condition needs, only NotExist is met. */
export const isConditionMet = (
  condition: PolicyCondition,
  tested: FoundOrMissing,
  comparison: FoundOrMissing,
): boolean => {
  const { cond, valueProcess } = condition;
  if (cond === "Exist" || cond === "NotExist") return (cond === "Exist") === (tested !== undefined);
  const test = typeof cond === "string" && Object.hasOwn(comparisons, cond) ? comparisons[cond] : undefined;
  if (test === undefined) throw new Error(`cond must be one of ${knownConditions.join(", ")}, not ${quoteValue(cond)}`);
  if (tested === undefined || comparison === undefined) return false;
  // As in kinitiras, In and NotIn ignore valueProcess.
  const isProcessed = valueProcess !== undefined && valueProcess !== null && !cond.endsWith("In");
  return test(tested.value, isProcessed ? processValue(comparison.value, valueProcess) : comparison.value);
};

/** Compares the tested value with the value of the condition. */
type CompareValues = (tested: unknown, value: unknown) => boolean;

/** The comparisons by a condition's `cond`. */
const comparisons: Record<Exclude<PolicyCondition["cond"], "Exist" | "NotExist">, CompareValues> = {
  Equal: (tested, value) => isEqual(tested, value),
  NotEqual: (tested, value) => !isEqual(tested, value),
  In: (tested, value) => isElement(tested, value),
  NotIn: (tested, value) => !isElement(tested, value),
  Gt: (tested, value) => compareOrder(tested, value) > 0,
  Gte: (tested, value) => compareOrder(tested, value) >= 0,
  Lt: (tested, value) => compareOrder(tested, value) < 0,
  Lte: (tested, value) => compareOrder(tested, value) <= 0,
};

const knownConditions = [...Object.keys(comparisons), "Exist", "NotExist"];

/** Calculates with the compared value as `valueProcess` says, such as `* 50%`. */
const processValue = (value: unknown, process: PolicyCondition["valueProcess"]): ExactFraction => {
  if (!isMap(process)) throw new Error("valueProcess must be an object");
  const { operation, operationWith } = process;
  const percentage = isTextOrNumber(operationWith) ? parseDecimalOrPercentage(operationWith) : undefined;
  if (percentage === undefined)
    throw new Error("valueProcess.operationWith must be a number or a percentage such as 50%");
  const number = parseDecimalOrQuantity(value);
  if (number === undefined)
    throw new Error(`valueProcess needs a number, and the value is ${describeValueType(value)}`);
  const result = calculateWithExactFractions(number, operation, percentage);
  if (result !== undefined) return result;
  throw new Error(
    operation === "/"
      ? "valueProcess.operationWith must not be 0 in a division"
      : `valueProcess.operation must be +, -, * or /, not ${quoteValue(operation)}`,
  );
};

const isElement = (tested: unknown, values: unknown): boolean => {
  if (!Array.isArray(values))
    throw new Error(`In and NotIn need a list, and the value is ${describeValueType(values)}`);
  return values.some((value) => isEqual(tested, value));
};

/** The greatest depth of values that are compared. The comparison of deeper values could overflow the stack. */
const maximumDepth = 1000;

/** Compares two values. If one of them is a number, they are compared as numbers; two texts must be identical. */
const isEqual = (left: unknown, right: unknown, depth = 0): boolean => {
  if (depth > maximumDepth) throw new Error(`the values are nested deeper than ${maximumDepth} levels`);
  if (isNumber(left) || isNumber(right)) {
    const [first, second] = [parseDecimalOrQuantity(left), parseDecimalOrQuantity(right)];
    return first !== undefined && second !== undefined && compareDecimals(first, second) === 0;
  }
  if (Array.isArray(left) && Array.isArray(right))
    return left.length === right.length && left.every((value, index) => isEqual(value, right[index], depth + 1));
  if (!isMap(left) || !isMap(right)) return left === right;
  const keys = Object.keys(left);
  return (
    keys.length === Object.keys(right).length &&
    keys.every((key) => Object.hasOwn(right, key) && isEqual(left[key], right[key], depth + 1))
  );
};

const isNumber = (value: unknown) => typeof value === "number" || isExactFraction(value);

/** Returns a negative number if `left` is smaller. Texts that are numbers or quantities are compared as numbers. */
const compareOrder = (left: unknown, right: unknown): number => {
  const [first, second] = [parseDecimalOrQuantity(left), parseDecimalOrQuantity(right)];
  if (first !== undefined && second !== undefined) return compareDecimals(first, second);
  if (typeof left === "string" && typeof right === "string") return compareBytes(left, right);
  // The message doesn't contain the values: the user may have no right to read the object that they come from.
  throw new Error(`${describeValueType(left)} and ${describeValueType(right)} can't be ordered`);
};

const describeValueType = (value: unknown) => (isExactFraction(value) ? "a number" : describeType(value));
