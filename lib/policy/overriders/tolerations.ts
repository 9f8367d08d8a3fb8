import { any, isMap, isSame, type Json, listOf, own, put } from "../../json.ts";
import type { OverrideTemplate } from "../kinds.ts";
import { insert } from "./pod-spec.ts";

export const changeTolerations = (podSpec: Json, { operation, tolerations }: OverrideTemplate): boolean => {
  const given = listOf(tolerations, "template.tolerations") ?? [];
  if (given.length === 0) throw new Error("template.tolerations must have one at least");
  if (!given.every(isMap)) throw new Error("template.tolerations must be maps");

  const present = presentIn(podSpec);
  if (operation === "remove") {
    const kept = present.filter((there) => !given.some((toleration) => matches(toleration, there)));
    return kept.length < present.length && put(podSpec, "tolerations", kept);
  }
  if (present.length === 0) return put(podSpec, "tolerations", given);
  if (operation === "add") return insert(podSpec, "tolerations", given);
  return any(given, (toleration) => replaceIn(podSpec, toleration, given));
};

const presentIn = (podSpec: Json): unknown[] => listOf(own(podSpec, "tolerations"), "tolerations") ?? [];

/** Skips tolerations equal to another given one: they may differ only in effect, which `matches` doesn't compare. */
const replaceIn = (podSpec: Json, toleration: Json, given: Json[]): boolean => {
  const present = presentIn(podSpec);
  const isMeant = (there: unknown) =>
    matches(toleration, there) && !given.some((other) => other !== toleration && isSame(other, there));
  const places = [...present.keys()].filter((index) => isMeant(present[index]));
  return places.length === 0
    ? insert(podSpec, "tolerations", [toleration])
    : any(places, (index) => put(present, index, toleration));
};

/** Compares key and value, or the key alone for Exists. */
const matches = (toleration: Json, there: unknown): boolean => {
  if (!isMap(there) || !isOwnText(there, "key") || there.key !== toleration.key) return false;
  const operator = toleration.operator ?? "";
  if (operator === "Exists") return true;
  return (operator === "" || operator === "Equal") && isOwnText(there, "value") && there.value === toleration.value;
};

const isOwnText = (map: Json, key: string) => typeof own(map, key) === "string";
