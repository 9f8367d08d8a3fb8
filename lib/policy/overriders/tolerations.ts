import { applyToEach, getOwn, isMap, isSame, type JsonMap, readListIfSet, setMemberToCopy } from "../../json.ts";
import type { OverrideTemplate } from "../types.ts";
import { prependMissingElements } from "./pod-spec.ts";

/** Applies a template of tolerations to a pod spec in place, and reports whether anything changed. */
export const changeTolerations = (podSpec: JsonMap, { operation, tolerations }: OverrideTemplate): boolean => {
  const newTolerations = readListIfSet(tolerations, "template.tolerations") ?? [];
  if (newTolerations.length === 0) throw new Error("template.tolerations must have at least one element");
  if (!newTolerations.every(isMap)) throw new Error("template.tolerations must be maps");
  const present = listTolerations(podSpec);
  if (operation === "remove") {
    const kept = present.filter(
      (podToleration) => !newTolerations.some((toleration) => matches(toleration, podToleration)),
    );
    return kept.length < present.length && setMemberToCopy(podSpec, "tolerations", kept);
  }
  if (present.length === 0) return setMemberToCopy(podSpec, "tolerations", newTolerations);
  if (operation === "add") return prependMissingElements(podSpec, "tolerations", newTolerations);
  return applyToEach(newTolerations, (toleration) => replaceMatchesOrAdd(podSpec, toleration, newTolerations));
};

const listTolerations = (podSpec: JsonMap): unknown[] =>
  readListIfSet(getOwn(podSpec, "tolerations"), "tolerations") ?? [];

/**
 * Replaces the pod's tolerations that match `toleration`, or adds it if none matches. A toleration of the pod that is
 * equal to another of `newTolerations` is not replaced.
 */
const replaceMatchesOrAdd = (podSpec: JsonMap, toleration: JsonMap, newTolerations: JsonMap[]): boolean => {
  const present = listTolerations(podSpec);
  const isReplaced = (podToleration: unknown) =>
    matches(toleration, podToleration) &&
    !newTolerations.some((candidate) => candidate !== toleration && isSame(candidate, podToleration));
  const places = [...present.keys()].filter((index) => isReplaced(present[index]));
  return places.length === 0
    ? prependMissingElements(podSpec, "tolerations", [toleration])
    : applyToEach(places, (index) => setMemberToCopy(present, index, toleration));
};

/**
 * Reports whether a toleration of the pod has the key of the policy's toleration and, unless the policy's
 * operator is Exists, also its value.
 */
const matches = (toleration: JsonMap, podToleration: unknown): boolean => {
  if (!isMap(podToleration) || !hasOwnText(podToleration, "key") || podToleration.key !== toleration.key) return false;
  const operator = toleration.operator ?? "";
  if (operator === "Exists") return true;
  return (
    (operator === "" || operator === "Equal") &&
    hasOwnText(podToleration, "value") &&
    podToleration.value === toleration.value
  );
};

const hasOwnText = (map: JsonMap, key: string) => typeof getOwn(map, key) === "string";
