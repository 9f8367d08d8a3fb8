import { EvaluationError, findSize, LibraryObject, Optional, type Value } from "./values.ts";

/** The highest cost of one expression. */
export const mostExpressionCost = 1_000_000;

/** Returns the cost of reading a text or a list of this size once. */
export const countTraversal = (size: number, factor = 0.1): number => Math.ceil(size * factor);

/** Returns the size of a value from which Kubernetes computes costs. */
export const getActualSize = (value: Value): number =>
  value instanceof LibraryObject ? value.size : (findSize(value) ?? 1);

/** Returns the size from which the costs of CEL's own functions are computed; of an optional, its value's size. */
export const getCostSize = (value: Value): number => {
  if (value instanceof Optional && value.value !== undefined) return getCostSize(value.value);
  // An optional may contain an error, although the type Value excludes errors.
  return (value as unknown) instanceof EvaluationError ? 1 : getActualSize(value);
};

/** Returns the cost of a function that reads its first argument once. */
export const countReading = ([text = null]: readonly Value[]): number => countTraversal(getActualSize(text));
export const countReadingTwice = ([text = null]: readonly Value[]): number => countTraversal(2 * getActualSize(text));

/** Returns the cost of one of CEL's own functions that reads its first argument once. */
export const countStandardReading = ([value = null]: readonly Value[]): number => countTraversal(getCostSize(value));
