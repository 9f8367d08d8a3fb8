import type { Toleration } from "../kubernetes/core/v1.ts";

/** Merges two lists of tolerations, and leaves out each that another one covers. Of equal ones, the first is kept. */
export const mergeTolerations = (first: readonly Toleration[], second: readonly Toleration[]): Toleration[] => {
  const entries = [...first, ...second].map((toleration) => ({ toleration, full: fillInToleration(toleration) }));
  const later = createCoverage();
  const notCoveredByLater = new Set(
    entries.toReversed().filter(({ full }) => {
      // Of equal tolerations, the first is kept: later equal ones don't count here.
      const byEqual = false;
      const isNeeded = !later.covers(full, byEqual);
      later.add(full);
      return isNeeded;
    }),
  );
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

/** A toleration in a group. The tolerations of a group cover the same taints, but for different times. */
interface Cover {
  id: string;
  seconds: number;
}

/**
 * Returns a set of tolerations. Its function `covers` reports whether a toleration of the set covers another one, by
 * kube-apiserver's comparison. It doesn't loop over the set, because a pod may have thousands of tolerations.
 */
const createCoverage = () => {
  const ids = new Set<string>();
  /** The two tolerations of each group with the most seconds: the second one may cover the first. */
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
    /** With `byEqual` false, a toleration of the set that is equal to `narrow` doesn't count. */
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
