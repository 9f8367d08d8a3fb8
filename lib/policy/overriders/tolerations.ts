import { applyToEach, getOwn, isMap, isSame, type JsonMap, requireList, setMember } from "../../json.ts";
import type { OverrideTemplate } from "../types.ts";
import { insert } from "./pod-spec.ts";

export const changeTolerations = (podSpec: JsonMap, { operation, tolerations }: OverrideTemplate): boolean => {
  const given = requireList(tolerations, "template.tolerations") ?? [];
  if (given.length === 0) throw new Error("template.tolerations must have one at least");
  if (!given.every(isMap)) throw new Error("template.tolerations must be maps");

  const present = presentIn(podSpec);
  if (operation === "remove") {
    const kept = present.filter((there) => !given.some((toleration) => matches(toleration, there)));
    return kept.length < present.length && setMember(podSpec, "tolerations", kept);
  }
  if (present.length === 0) return setMember(podSpec, "tolerations", given);
  if (operation === "add") return insert(podSpec, "tolerations", given);
  return applyToEach(given, (toleration) => replaceIn(podSpec, toleration, given));
};

const presentIn = (podSpec: JsonMap): unknown[] => requireList(getOwn(podSpec, "tolerations"), "tolerations") ?? [];

/** Skips tolerations equal to another given one: they may differ only in effect, which `matches` doesn't compare. */
const replaceIn = (podSpec: JsonMap, toleration: JsonMap, given: JsonMap[]): boolean => {
  const present = presentIn(podSpec);
  const isMeant = (there: unknown) =>
    matches(toleration, there) && !given.some((other) => other !== toleration && isSame(other, there));
  const places = [...present.keys()].filter((index) => isMeant(present[index]));
  return places.length === 0
    ? insert(podSpec, "tolerations", [toleration])
    : applyToEach(places, (index) => setMember(present, index, toleration));
};

/** Compares key and value, or the key alone for Exists. */
const matches = (toleration: JsonMap, there: unknown): boolean => {
  if (!isMap(there) || !isOwnText(there, "key") || there.key !== toleration.key) return false;
  const operator = toleration.operator ?? "";
  if (operator === "Exists") return true;
  return (operator === "" || operator === "Equal") && isOwnText(there, "value") && there.value === toleration.value;
};

const isOwnText = (map: JsonMap, key: string) => typeof getOwn(map, key) === "string";
