import { findSize, Optional, type Value } from "./values.ts";

/** Returns the cost of reading a text, bytes or a list of a size once. */
export const countTraversal = (size: number, factor = 0.1): number => Math.ceil(size * factor);

/** Returns the size that costs are computed from: 1 for a value that has none. */
export const getActualSize = (value: Value): number => {
  if (value instanceof Optional && value.value !== undefined) return getActualSize(value.value);
  return findSize(value) ?? 1;
};
