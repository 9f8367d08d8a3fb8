import { EvaluationError } from "../values.ts";

/** Parses with a function. `describe` returns the message that replaces that of an error. */
export const rewordErrors = <Result>(parse: () => Result, describe: (message: string) => string): Result => {
  try {
    return parse();
  } catch (error) {
    throw error instanceof EvaluationError ? new EvaluationError(describe(error.message)) : error;
  }
};

/** Returns what a function returns; undefined if it throws an error of the expression. */
export const ignoreErrors = <Result>(compute: () => Result): Result | undefined => {
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
    ignoreErrors(() => parse(...args)) !== undefined;
