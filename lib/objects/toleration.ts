import type { Toleration } from "kubernetes-types/core/v1.d.ts";

/** Both lists as one, without what another toleration of it covers; of equal ones the first stays. */
export const mergeTolerations = (first: readonly Toleration[], second: readonly Toleration[]): Toleration[] => {
  const all = [...first, ...second].map((toleration) => ({ toleration, reach: reachOf(toleration) }));
  const merged: typeof all = [];
  for (const [index, { toleration, reach }] of all.entries()) {
    const isCovered =
      merged.some((kept) => covers(kept.reach, reach)) ||
      all.some((other, at) => at > index && !isSame(other.reach, reach) && covers(other.reach, reach));
    if (!isCovered) merged.push({ toleration, reach });
  }
  return merged.map(({ toleration }) => toleration);
};

/** Whether each toleration is covered by one that is allowed. */
export const allTolerationsAmong = (allowed: readonly Toleration[], tolerations: readonly Toleration[]): boolean => {
  const reaches = allowed.map(reachOf);
  return tolerations.map(reachOf).every((reach) => reaches.some((wider) => covers(wider, reach)));
};

/** What is left out is empty; seconds that are left out never end. */
const reachOf = ({ key = "", operator = "", value = "", effect = "", tolerationSeconds }: Toleration) => {
  return { key, operator, value, effect, seconds: tolerationSeconds ?? Number.POSITIVE_INFINITY };
};

type Reach = ReturnType<typeof reachOf>;

/** As kube-apiserver has it. */
const covers = (wide: Reach, narrow: Reach): boolean => {
  if (isSame(wide, narrow)) return true;

  const { key, operator, value, effect, seconds } = wide;
  if (key !== narrow.key && !(key === "" && operator === "Exists")) return false;
  if (effect !== narrow.effect && effect !== "") return false;
  if (effect === "NoExecute" && seconds < narrow.seconds) return false;

  if (operator === "Exists") return true;
  // None means Equal; of the narrow one, upstream doesn't take it so.
  return (operator === "Equal" || operator === "") && narrow.operator === "Equal" && value === narrow.value;
};

const isSame = (one: Reach, other: Reach) =>
  one.key === other.key &&
  one.operator === other.operator &&
  one.value === other.value &&
  one.effect === other.effect &&
  one.seconds === other.seconds;
