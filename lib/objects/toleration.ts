import type { Toleration } from "../kubernetes/core/v1.ts";

/** Merges two lists of tolerations, without those that another one covers; of equal ones the first stays. */
export const mergeTolerations = (first: readonly Toleration[], second: readonly Toleration[]): Toleration[] => {
  const all = [...first, ...second].map((toleration) => ({ toleration, reach: fillInToleration(toleration) }));
  const later = createCoverage();
  const needed = new Set(
    all.toReversed().filter(({ reach }) => {
      const isNeeded = !later.covers(reach, false);
      later.add(reach);
      return isNeeded;
    }),
  );
  const earlier = createCoverage();
  return all.flatMap((one) => {
    if (!needed.has(one) || earlier.covers(one.reach)) return [];
    earlier.add(one.reach);
    return [one.toleration];
  });
};

/** Returns a function that reports whether a toleration is covered by at least one of the allowed tolerations. */
export const createTolerationCheck = (allowed: readonly Toleration[]): ((toleration: Toleration) => boolean) => {
  const coverage = createCoverage();
  for (const toleration of allowed) coverage.add(fillInToleration(toleration));
  return (toleration) => coverage.covers(fillInToleration(toleration));
};

/** Fills in absent fields: texts become empty; an absent tolerationSeconds means that the toleration never ends. */
const fillInToleration = ({ key = "", operator = "", value = "", effect = "", tolerationSeconds }: Toleration) => {
  return { key, operator, value, effect, seconds: tolerationSeconds ?? Number.POSITIVE_INFINITY };
};

type FilledInToleration = ReturnType<typeof fillInToleration>;

/** A toleration in a group of those that cover the same but for the seconds. */
interface Cover {
  id: string;
  seconds: number;
}

/**
 * Returns a set of tolerations that answers without a loop over them, because a pod may have thousands, whether one of
 * them covers another toleration, as kube-apiserver compares them.
 */
const createCoverage = () => {
  const ids = new Set<string>();
  /** The longest toleration of each group, and the longest that differs from it. */
  const groups = new Map<string, [Cover, Cover?]>();
  return {
    add: (wide: FilledInToleration): void => {
      const { key, operator, value, effect } = wide;
      const cover = { id: toId(wide), seconds: effect === "NoExecute" ? wide.seconds : Number.POSITIVE_INFINITY };
      ids.add(cover.id);
      // Upstream treats an empty operator as Equal in the covering toleration, but not in the covered one.
      const isEqual = operator === "Equal" || operator === "";
      if (!isEqual && operator !== "Exists") return;
      const group = JSON.stringify(isEqual ? [key, effect, value] : [key, effect]);
      const [first, second] = groups.get(group) ?? [];
      if (first === undefined) groups.set(group, [cover]);
      else if (first.id !== cover.id && first.seconds < cover.seconds) groups.set(group, [cover, first]);
      else if (first.id !== cover.id && !(second && second.seconds >= cover.seconds)) groups.set(group, [first, cover]);
    },
    /** `byEqual` is false if a toleration that is equal to this one doesn't count. */
    covers: (narrow: FilledInToleration, byEqual = true): boolean => {
      const { key, operator, value, effect, seconds } = narrow;
      const id = toId(narrow);
      if (byEqual && ids.has(id)) return true;
      const wider = [effect, ""].flatMap((effect) => [
        [key, effect],
        ["", effect],
        ...(operator === "Equal" ? [[key, effect, value]] : []),
      ]);
      return wider.some((group) =>
        groups.get(JSON.stringify(group))?.some((cover) => cover && cover.id !== id && cover.seconds >= seconds),
      );
    },
  };
};

const toId = (toleration: FilledInToleration) => JSON.stringify({ ...toleration, seconds: String(toleration.seconds) });
