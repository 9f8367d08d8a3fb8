import { isSame, type Json, listOf, own, put } from "../../../json.ts";

/** Puts each of what is given in front of a list in turn, but for those that are there; says whether there were others. */
export const insert = (parent: Json, key: string, given: readonly unknown[]): boolean => {
  const present = listOf(own(parent, key), key) ?? [];
  const fresh: unknown[] = [];
  for (const term of given)
    if (![fresh, present].some((list) => list.some((other) => isSame(other, term)))) fresh.push(term);
  return fresh.length > 0 && put(parent, key, [...fresh.reverse(), ...present]);
};
