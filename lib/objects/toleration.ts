import type { Toleration } from "../kubernetes/core/v1.ts";

/** Merges two lists of tolerations, and leaves out each that another one covers. Of equal ones, the first is kept. */
export const mergeTolerations = (first: readonly Toleration[], second: readonly Toleration[]): Toleration[] => {
  const entries = [...first, ...second].map((toleration) => ({ toleration, full: fillInToleration(toleration) }));
  // From the last to the first: each toleration is compared with all later ones.
  const later = createCoverage();
  const notCoveredByLater = new Set(
    entries.toReversed().filter(({ full }) => {
      // A later toleration that is equal doesn't make this one superfluous: of equal ones, the first is kept.
      const doEqualOnesCount = false;
      const isNeeded = !later.covers(full, doEqualOnesCount);
      later.add(full);
      return isNeeded;
    }),
  );
  // From the first to the last: each of the remaining tolerations is compared with all earlier ones, also equal ones.
  const earlier = createCoverage();
  return entries.flatMap((entry) => {
    if (!notCoveredByLater.has(entry) || earlier.covers(entry.full)) return [];
    earlier.add(entry.full);
    return [entry.toleration];
  });
};

/** Returns a function that reports whether a toleration is covered by at least one of the allowed tolerations. */
export const createTolerationCheck = (allowed: readonly Toleration[]): ((toleration: Toleration) => boolean) => {
  const coverage = createCoverage();
  for (const toleration of allowed) coverage.add(fillInToleration(toleration));
  return (toleration) => coverage.covers(fillInToleration(toleration));
};

/** Fills in absent fields: texts become empty, and `seconds` becomes infinite, because the toleration never ends. */
const fillInToleration = ({ key = "", operator = "", value = "", effect = "", tolerationSeconds }: Toleration) => {
  return { key, operator, value, effect, seconds: tolerationSeconds ?? Number.POSITIVE_INFINITY };
};

type FilledInToleration = ReturnType<typeof fillInToleration>;

/** A toleration in a group. The tolerations of a group tolerate the same taints, but for different times. */
interface GroupedToleration {
  /** All fields of the toleration, as one text. */
  id: string;
  /** For how long it tolerates the taints. */
  seconds: number;
}

/**
 * Returns a set of tolerations. Its function `covers` reports whether a toleration of the set covers another one, by
 * kube-apiserver's comparison. It doesn't loop over the set, because a pod may have thousands of tolerations.
 */
const createCoverage = () => {
  const ids = new Set<string>();
  /**
   * The two tolerations with the most seconds of each group: of those with the same key and effect and, with Equal, the
   * same value. If `covers` must ignore the first, because it equals the tested toleration, the second decides.
   */
  const groups = new Map<string, [GroupedToleration, GroupedToleration?]>();
  return {
    add: (wide: FilledInToleration): void => {
      const { key, operator, value, effect } = wide;
      const added = { id: toId(wide), seconds: effect === "NoExecute" ? wide.seconds : Number.POSITIVE_INFINITY };
      ids.add(added.id);
      // Upstream treats an empty operator as Equal in the covering toleration, but not in the covered one.
      const isEqual = operator === "Equal" || operator === "";
      if (!isEqual && operator !== "Exists") return;
      const group = JSON.stringify(isEqual ? [key, effect, value] : [key, effect]);
      const [longest, second] = groups.get(group) ?? [];
      if (longest === undefined) groups.set(group, [added]);
      else if (longest.id === added.id) return;
      else if (longest.seconds < added.seconds) groups.set(group, [added, longest]);
      else if (!(second && second.seconds >= added.seconds)) groups.set(group, [longest, added]);
    },
    /** With `doEqualOnesCount` false, a toleration of the set that is equal to `narrow` doesn't count. */
    covers: (narrow: FilledInToleration, doEqualOnesCount = true): boolean => {
      const { key, operator, value, effect, seconds } = narrow;
      const id = toId(narrow);
      if (doEqualOnesCount && ids.has(id)) return true;
      const widerGroups = [effect, ""].flatMap((effect) => [
        [key, effect],
        ["", effect],
        ...(operator === "Equal" ? [[key, effect, value]] : []),
      ]);
      return widerGroups.some((group) =>
        groups.get(JSON.stringify(group))?.some((wide) => wide && wide.id !== id && wide.seconds >= seconds),
      );
    },
  };
};

const toId = (toleration: FilledInToleration) => JSON.stringify({ ...toleration, seconds: String(toleration.seconds) });
