import { EvaluationError } from "../values.ts";

/** Calls a function. If it throws an EvaluationError, throws another one with the message that `describe` returns. */
export const rewordErrors = <Result>(parse: () => Result, describe: (message: string) => string): Result => {
  try {
    return parse();
  } catch (error) {
    throw error instanceof EvaluationError ? new EvaluationError(describe(error.message)) : error;
  }
};

/** Calls a function. Returns its result; undefined if it throws an EvaluationError. */
export const ignoreErrors = <Result>(compute: () => Result): Result | undefined => {
  try {
    return compute();
  } catch (error) {
    if (error instanceof EvaluationError) return undefined;
    throw error;
  }
};

/** Returns a function that reports whether `parse` accepts its arguments. */
export const reportParsing =
  <Arguments extends unknown[]>(parse: (...args: Arguments) => object) =>
  (...args: Arguments): boolean =>
    ignoreErrors(() => parse(...args)) !== undefined;
