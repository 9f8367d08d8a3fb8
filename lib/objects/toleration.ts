import type { Toleration } from "../kubernetes/core/v1.ts";

/** Merges two lists of tolerations, without those that another one covers; of equal ones the first stays. */
export const mergeTolerations = (first: readonly Toleration[], second: readonly Toleration[]): Toleration[] => {
  const all = [...first, ...second].map((toleration) => ({ toleration, reach: fillInToleration(toleration) }));
  const merged: typeof all = [];
  for (const [index, { toleration, reach }] of all.entries()) {
    const isCovered =
      merged.some((kept) => covers(kept.reach, reach)) ||
      all.some((candidate, at) => at > index && !isSame(candidate.reach, reach) && covers(candidate.reach, reach));
    if (!isCovered) merged.push({ toleration, reach });
  }
  return merged.map(({ toleration }) => toleration);
};

/** Reports whether each toleration is covered by at least one of the allowed tolerations. */
export const areTolerationsCovered = (allowed: readonly Toleration[], tolerations: readonly Toleration[]): boolean => {
  const reaches = allowed.map(fillInToleration);
  return tolerations.map(fillInToleration).every((reach) => reaches.some((wider) => covers(wider, reach)));
};

/** Fills in absent fields: texts become empty; an absent tolerationSeconds means that the toleration never ends. */
const fillInToleration = ({ key = "", operator = "", value = "", effect = "", tolerationSeconds }: Toleration) => {
  return { key, operator, value, effect, seconds: tolerationSeconds ?? Number.POSITIVE_INFINITY };
};

type FilledInToleration = ReturnType<typeof fillInToleration>;

/** Reports whether a toleration covers another, as kube-apiserver compares them. */
const covers = (wide: FilledInToleration, narrow: FilledInToleration): boolean => {
  if (isSame(wide, narrow)) return true;

  const { key, operator, value, effect, seconds } = wide;
  if (key !== narrow.key && !(key === "" && operator === "Exists")) return false;
  if (effect !== narrow.effect && effect !== "") return false;
  if (effect === "NoExecute" && seconds < narrow.seconds) return false;

  if (operator === "Exists") return true;
  // Upstream treats an empty operator as Equal in the covering toleration, but not in the covered one.
  return (operator === "Equal" || operator === "") && narrow.operator === "Equal" && value === narrow.value;
};

const isSame = (left: FilledInToleration, right: FilledInToleration) =>
  left.key === right.key &&
  left.operator === right.operator &&
  left.value === right.value &&
  left.effect === right.effect &&
  left.seconds === right.seconds;
