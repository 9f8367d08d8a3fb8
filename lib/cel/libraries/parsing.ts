import { countTraversal, getActualSize } from "../cost.ts";
import type { FunctionCost } from "../functions.ts";
import { EvaluationError } from "../values.ts";

/** Returns the cost of a function that reads its first argument once. */
export const countReading: FunctionCost = ([text = null]) => countTraversal(getActualSize(text));
export const countReadingTwice: FunctionCost = ([text = null]) => countTraversal(2 * getActualSize(text));

/** Parses with a function; an error's message is replaced by what `describe` makes of it. */
export const rewordErrors = <Result>(parse: () => Result, describe: (message: string) => string): Result => {
  try {
    return parse();
  } catch (error) {
    throw error instanceof EvaluationError ? new EvaluationError(describe(error.message)) : error;
  }
};

/** Returns a function that reports whether arguments can be parsed. Bundles leave out results that they don't use. */
export const reportParsing =
  /* @__NO_SIDE_EFFECTS__ */
    <Arguments extends unknown[]>(parse: (...args: Arguments) => unknown) =>
    (...args: Arguments): boolean => {
      try {
        parse(...args);
        return true;
      } catch (error) {
        if (error instanceof EvaluationError) return false;
        throw error;
      }
    };
