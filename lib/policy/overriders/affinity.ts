import {
  applyToEach,
  deleteMember,
  getOwn,
  type JsonMap,
  openMap,
  requireList,
  requireMap,
  setMember,
} from "../../json.ts";
import type { OverrideTemplate } from "../types.ts";
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

export const changeAffinity = (podSpec: JsonMap, { operation, affinity }: OverrideTemplate): boolean => {
  const given = places.flatMap((place) => {
    const terms = listIn({ affinity }, place);
    // remove only names a list, so the list may be empty.
    return terms === undefined || (terms.length === 0 && operation !== "remove") ? [] : [{ place, terms }];
  });
  if (given.length === 0) throw new Error("template.affinity must have one list of terms at least");

  return applyToEach(given, ({ place, terms }) => {
    if (operation === "remove") return removeFrom(podSpec, place.parents, place.key);
    const present = operation === "add" ? listIn(podSpec, place) : undefined;
    const parent = parentIn(podSpec, place);
    return present?.length ? insert(parent, place.key, terms) : setMember(parent, place.key, terms);
  });
};

const listIn = (root: JsonMap, { parents, key }: Place): unknown[] | undefined => {
  const parent = parents.reduce<JsonMap | undefined>((map, step) => requireMap(getOwn(map, step), step), root);
  return requireList(getOwn(parent, key), key);
};

const parentIn = (root: JsonMap, { parents }: Place): JsonMap =>
  parents.reduce((map, step) => openMap(map, step, step), root);

/** Removes a list and parents that become empty: an empty map of required terms would be invalid. */
const removeFrom = (map: JsonMap, [step, ...rest]: readonly string[], key: string): boolean => {
  if (step === undefined) return deleteMember(map, key);
  const below = requireMap(getOwn(map, step), step);
  if (below === undefined || !removeFrom(below, rest, key)) return false;
  if (Object.keys(below).length === 0) deleteMember(map, step);
  return true;
};
