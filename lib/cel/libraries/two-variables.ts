import { declareFunction, type FunctionDeclaration } from "../functions.ts";
import { mapOf, parameter } from "../types.ts";
import { CelMap, EvaluationError, findInMap, listEntries, toMapKey, type Value, type ValueObject } from "../values.ts";
import { formatValue } from "./value-text.ts";

type Entries = Map<string, readonly [key: Value, value: Value]>;

/** The maps that loops fill. A loop adds entries to its map in place: no other value can contain the map yet. */
const growing = new WeakMap<CelMap, Entries>();

/** Returns the text of a key. Lists and maps that are keys are all different, because Go compares them by addresses. */
const toKey = (entries: Entries, key: Value) => toMapKey(key) ?? `*${entries.size}`;

/**
 * Adds entries to a map, and returns it. If a loop made the map (it is in `growing`), adds them in place. Any other map
 * is copied first, and the later rounds of the loop add to the copy.
 */
const insert = (map: ValueObject | CelMap, added: Iterable<readonly [key: Value, value: Value]>): CelMap => {
  const loopEntries = map instanceof CelMap ? growing.get(map) : undefined;
  const entries: Entries = loopEntries ?? new Map();
  const result = loopEntries ? (map as CelMap) : new CelMap(entries);
  if (!loopEntries) {
    for (const entry of listEntries(map)) entries.set(toKey(entries, entry[0]), entry);
    growing.set(result, entries);
  }
  for (const entry of added) {
    if (findInMap(result, entry[0]) !== undefined)
      throw new EvaluationError(`insert failed: key ${formatValue(entry[0])} already exists`);
    entries.set(toKey(entries, entry[0]), entry);
  }
  return result;
};

const insertEntry = (map: ValueObject | CelMap, key: Value, value: Value) => insert(map, [[key, value]]);
const insertAll = (map: ValueObject | CelMap, added: ValueObject | CelMap) => insert(map, listEntries(added));

const k = parameter("K");
const v = parameter("V");
const map = mapOf(k, v);

/** The function that `transformMap` and `transformMapEntry` call. Expressions can't contain its name. */
export const twoVariableFunctions: readonly FunctionDeclaration[] = [
  declareFunction("cel.@mapInsert", "@mapInsert_map_key_value", [map, k, v], map, insertEntry),
  declareFunction("cel.@mapInsert", "@mapInsert_map_map", [map, map], map, insertAll),
];
