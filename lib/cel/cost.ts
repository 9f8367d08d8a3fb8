import { findSize, LibraryObject, Optional, type Value } from "./values.ts";

/** Returns the cost of going through a text or a list once. */
export const countTraversal = (size: number, factor = 0.1): number => Math.ceil(size * factor);

/** Returns the size of a value as costs see it. */
export const getActualSize = (value: Value): number => {
  if (value instanceof Optional && value.value !== undefined) return getActualSize(value.value);
  return value instanceof LibraryObject ? value.size : (findSize(value) ?? 1);
};
