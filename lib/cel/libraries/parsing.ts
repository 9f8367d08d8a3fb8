import { countTraversal, getActualSize, getInnerSize } from "../cost.ts";
import { EvaluationError, type Value } from "../values.ts";

/** Returns the cost of a function that reads its first argument once. */
export const countReading = ([text = null]: readonly Value[]): number => countTraversal(getActualSize(text));
export const countReadingTwice = ([text = null]: readonly Value[]): number => countTraversal(2 * getActualSize(text));

/** Returns the cost of one of CEL's own functions that reads its first argument once. */
export const countInner = ([value = null]: readonly Value[]): number => countTraversal(getInnerSize(value));

/** Parses with a function; an error's message is replaced by what `describe` makes of it. */
export const rewordErrors = <Result>(parse: () => Result, describe: (message: string) => string): Result => {
  try {
    return parse();
  } catch (error) {
    throw error instanceof EvaluationError ? new EvaluationError(describe(error.message)) : error;
  }
};

/** Returns what a function returns; undefined if it throws an error of the expression. */
export const attempt = <Result>(compute: () => Result): Result | undefined => {
  try {
    return compute();
  } catch (error) {
    if (error instanceof EvaluationError) return undefined;
    throw error;
  }
};

/** Returns a function that reports whether arguments can be parsed. */
export const reportParsing =
  <Arguments extends unknown[]>(parse: (...args: Arguments) => object) =>
  (...args: Arguments): boolean =>
    attempt(() => parse(...args)) !== undefined;
