import { isText } from "postern/json";
import type { Toleration } from "postern/kubernetes/core/v1";
import { findKeyFaults, findValueFaults } from "postern/objects/label";

/** Parses a JSON list of tolerations; undefined if it is invalid. An empty text and `null` are empty lists. */
export const parseTolerations = (text: string): Toleration[] | undefined => {
  try {
    const list: unknown = text === "" ? [] : (JSON.parse(text) ?? []);
    if (!Array.isArray(list)) return undefined;
    const tolerations = list.map(decodeToleration);
    return tolerations.every((toleration) => toleration !== undefined) ? tolerations : undefined;
  } catch {
    return undefined;
  }
};

/** Decodes a toleration as Go does: it accepts names in any case, and ignores unknown fields. It checks no values. */
const decodeToleration = (input: unknown): Toleration | undefined => {
  if (typeof input !== "object" || Array.isArray(input)) return undefined;
  const members = new Map(Object.entries<unknown>({ ...input }).map(([name, value]) => [name.toLowerCase(), value]));
  const [key, operator, value, effect] = ["key", "operator", "value", "effect"].map((name) => members.get(name) ?? "");
  const seconds = members.get("tolerationseconds") ?? undefined;
  if (!isText(key) || !isText(operator) || !isText(value) || !isText(effect) || !isCount(seconds)) return undefined;
  return {
    ...(key && { key }),
    ...(operator && { operator }),
    ...(value && { value }),
    ...(effect && { effect }),
    ...(seconds !== undefined && { tolerationSeconds: seconds }),
  };
};

const isCount = (value: unknown): value is number | undefined => value === undefined || Number.isSafeInteger(value);

const effects = ["", "NoSchedule", "PreferNoSchedule", "NoExecute"];

/** Returns what is wrong with a toleration in the settings; undefined if nothing is wrong. */
export const findTolerationFault = (input: unknown): string | undefined => {
  const toleration = decodeToleration(input);
  if (toleration === undefined) return "is not a toleration";
  const { key = "", operator = "Equal", value = "", effect = "", tolerationSeconds } = toleration;
  const [keyFault, valueFault] = [key && findKeyFaults(key)[0], findValueFaults(value)[0]];
  if (operator !== "Equal" && operator !== "Exists")
    return `has the operator ${operator}, but must have Equal or Exists`;
  if (key === "" && operator !== "Exists") return "must have the operator Exists, because it has no key";
  if (operator === "Exists" && value !== "") return "must have no value, because it has the operator Exists";
  if (!effects.includes(effect)) return `has the unknown effect ${effect}`;
  if (tolerationSeconds !== undefined && effect !== "NoExecute")
    return "has tolerationSeconds, which only the effect NoExecute allows";
  return (keyFault && `has a key whose ${keyFault}`) || (valueFault && `has a value, but ${valueFault}`);
};
