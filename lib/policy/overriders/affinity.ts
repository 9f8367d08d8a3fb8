import { any, drop, type Json, listOf, mapAt, mapOf, own, put } from "../../json.ts";
import type { OverrideTemplate } from "../kinds.ts";
import { insert } from "./pod-spec.ts";

export const required = "requiredDuringSchedulingIgnoredDuringExecution";
const preferred = "preferredDuringSchedulingIgnoredDuringExecution";

export const places = [
  { parents: ["affinity", "nodeAffinity", required], key: "nodeSelectorTerms" },
  { parents: ["affinity", "nodeAffinity"], key: preferred },
  { parents: ["affinity", "podAffinity"], key: required },
  { parents: ["affinity", "podAffinity"], key: preferred },
  { parents: ["affinity", "podAntiAffinity"], key: required },
  { parents: ["affinity", "podAntiAffinity"], key: preferred },
];
type Place = (typeof places)[number];

export const changeAffinity = (podSpec: Json, { operation, affinity }: OverrideTemplate): boolean => {
  const given = places.flatMap((place) => {
    const terms = listIn({ affinity }, place);
    // remove only names a list, so the list may be empty.
    return terms === undefined || (terms.length === 0 && operation !== "remove") ? [] : [{ place, terms }];
  });
  if (given.length === 0) throw new Error("template.affinity must have one list of terms at least");

  return any(given, ({ place, terms }) => {
    if (operation === "remove") return removeFrom(podSpec, place.parents, place.key);
    const present = operation === "add" ? listIn(podSpec, place) : undefined;
    const parent = parentIn(podSpec, place);
    return present?.length ? insert(parent, place.key, terms) : put(parent, place.key, terms);
  });
};

const listIn = (root: Json, { parents, key }: Place): unknown[] | undefined => {
  const parent = parents.reduce<Json | undefined>((map, step) => mapOf(own(map, step), step), root);
  return listOf(own(parent, key), key);
};

const parentIn = (root: Json, { parents }: Place): Json => parents.reduce((map, step) => mapAt(map, step, step), root);

/** Removes a list and parents that become empty: an empty map of required terms would be invalid. */
const removeFrom = (map: Json, [step, ...rest]: readonly string[], key: string): boolean => {
  if (step === undefined) return drop(map, key);
  const below = mapOf(own(map, step), step);
  if (below === undefined || !removeFrom(below, rest, key)) return false;
  if (Object.keys(below).length === 0) drop(map, step);
  return true;
};
