import {
  applyToEach,
  deleteMember,
  getOrCreateMap,
  getOwn,
  type JsonMap,
  readListIfSet,
  readOptionalMap,
  setMemberToCopy,
} from "../../json.ts";
import type { OverrideTemplate } from "../types.ts";
import { prependMissingElements } from "./pod-spec.ts";

/** The name of the field with the required terms of nodeAffinity, podAffinity or podAntiAffinity. */
export const requiredTermsField = "requiredDuringSchedulingIgnoredDuringExecution";
const preferredTerms = "preferredDuringSchedulingIgnoredDuringExecution";

/** The lists of terms in a pod spec: the keys of the maps around the list, and the list's own key. */
export const affinityTermListPaths = [
  { parents: ["affinity", "nodeAffinity", requiredTermsField], key: "nodeSelectorTerms" },
  { parents: ["affinity", "nodeAffinity"], key: preferredTerms },
  { parents: ["affinity", "podAffinity"], key: requiredTermsField },
  { parents: ["affinity", "podAffinity"], key: preferredTerms },
  { parents: ["affinity", "podAntiAffinity"], key: requiredTermsField },
  { parents: ["affinity", "podAntiAffinity"], key: preferredTerms },
];
type AffinityList = (typeof affinityTermListPaths)[number];

/** Applies a template of affinities to a pod spec in place, and reports whether anything changed. */
export const changeAffinity = (podSpec: JsonMap, { operation, affinity }: OverrideTemplate): boolean => {
  const termLists = affinityTermListPaths.flatMap((place) => {
    const terms = findList({ affinity }, place);
    // A template with the operation `remove` only names the list to delete, so that list may be empty.
    return terms === undefined || (terms.length === 0 && operation !== "remove") ? [] : [{ place, terms }];
  });
  if (termLists.length === 0) throw new Error("template.affinity must have one list of terms at least");
  return applyToEach(termLists, ({ place, terms }) => {
    if (operation === "remove") return removeFrom(podSpec, place.parents, place.key);
    const present = operation === "add" ? findList(podSpec, place) : undefined;
    const parent = getOrCreateParent(podSpec, place);
    return present?.length
      ? prependMissingElements(parent, place.key, terms)
      : setMemberToCopy(parent, place.key, terms);
  });
};

const findList = (root: JsonMap, { parents, key }: AffinityList): unknown[] | undefined => {
  const parent = parents.reduce<JsonMap | undefined>((map, step) => readOptionalMap(getOwn(map, step), step), root);
  return readListIfSet(getOwn(parent, key), key);
};

const getOrCreateParent = (root: JsonMap, { parents }: AffinityList): JsonMap =>
  parents.reduce((map, step) => getOrCreateMap(map, step, step), root);

/** Removes a list, and the maps around it that become empty: an empty map of required terms is invalid. */
const removeFrom = (map: JsonMap, [step, ...rest]: readonly string[], key: string): boolean => {
  if (step === undefined) return deleteMember(map, key);
  const inner = readOptionalMap(getOwn(map, step), step);
  if (inner === undefined || !removeFrom(inner, rest, key)) return false;
  if (Object.keys(inner).length === 0) deleteMember(map, step);
  return true;
};
