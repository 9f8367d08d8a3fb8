import { Failure } from "./failure.ts";

/** A minor version of Kubernetes, such as `1.35`. */
export type KubernetesMinor = `1.${number}`;

/** The newest minor version that Postern knows. It is assumed if a cluster's version is unknown or newer. */
export const newestKubernetes: KubernetesMinor = "1.37";

/** The oldest minor version that Postern knows. */
export const oldestKubernetes: KubernetesMinor = "1.33";

/** Returns a sentence that says which minor version is assumed for an unknown one; undefined for a known one. */
export const describeMinorOutOfRange = (kubernetes: string | undefined): string | undefined => {
  const number = parseMinor(kubernetes ?? newestKubernetes);
  const isNewer = number > parseMinor(newestKubernetes);
  const isKnown = !isNewer && number >= parseMinor(oldestKubernetes);
  return isKnown
    ? undefined
    : `Kubernetes ${kubernetes} isn't known here; ${isNewer ? newestKubernetes : oldestKubernetes} is assumed`;
};

/** Values by the first minor version of Kubernetes to which they apply, in ascending order. */
export type Since<T> = Readonly<Record<KubernetesMinor, T>>;

/** Returns the entries of this minor version and of older ones. Without a version, returns all entries. */
export const selectSince = <T>(since: Since<T>, minor?: string): Since<T> => {
  const newest = minor === undefined ? Number.POSITIVE_INFINITY : parseMinor(minor);
  return Object.fromEntries(Object.entries(since).filter(([version]) => parseMinor(version) <= newest));
};

/** For each `since`, the minor version of the last call of `mergeSince`, and its result. */
const lastMerged = new WeakMap<object, readonly [minor: string | undefined, merged: object]>();

/**
 * Returns a rule's data for a minor version: entries of `since` up to it are merged, and later ones win. The result is
 * frozen, because later calls return it, too.
 */
export const mergeSince = <T extends object>(since: Since<T>, minor?: string): Readonly<T> => {
  const [knownMinor, known] = lastMerged.get(since) ?? [];
  if (known && knownMinor === minor) return known as T;
  const merged: T = Object.freeze(Object.assign({}, ...Object.values(selectSince(since, minor))));
  lastMerged.set(since, [minor, merged]);
  return merged;
};

/** Returns the number of a minor version: 35 for `1.35`. */
export const parseMinor = (version: string): number => {
  if (!/^1\.\d+$/.test(version)) throw new Failure(400, `"${version}" is no minor version of Kubernetes, such as 1.35`);
  return Number(version.slice(2));
};
