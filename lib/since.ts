import { Failure } from "./failure.ts";

/** A minor version of Kubernetes, such as `1.35`. */
export type KubernetesMinor = `1.${number}`;

/** The newest minor version that is known here; behaviour without a known version is this one's. */
export const newestKubernetes: KubernetesMinor = "1.37";

/** The oldest minor of Kubernetes that is known here. */
export const oldestKubernetes: KubernetesMinor = "1.33";

export const knownMinors = `${oldestKubernetes} to ${newestKubernetes}`;

/** Which clusters can call Postern: matchConditions are stable from 1.30 on. The README and pages have this sentence, too. */
export const supportedClusters = `Clusters need Kubernetes 1.30 or newer. Postern knows how the versions ${knownMinors} differ.`;

/** Says which minor is assumed in place of one that isn't known here; undefined for the others. */
export const describeUnknownMinor = (kubernetes: string | undefined): string | undefined => {
  const number = parseMinor(kubernetes ?? newestKubernetes);
  const isNewer = number > parseMinor(newestKubernetes);
  const isKnown = !isNewer && number >= parseMinor(oldestKubernetes);
  return isKnown
    ? undefined
    : `Kubernetes ${kubernetes} isn't known here; ${isNewer ? newestKubernetes : oldestKubernetes} is assumed`;
};

/** Values, each under the minor version of Kubernetes from which it applies, in ascending order. */
export type Since<T> = Readonly<Record<KubernetesMinor, T>>;

/** Returns the entries for a minor version: its own and those of older versions. Without a version, returns all. */
export const selectSince = <T>(since: Since<T>, minor?: string): Since<T> => {
  const newest = minor === undefined ? Number.POSITIVE_INFINITY : parseMinor(minor);
  return Object.fromEntries(Object.entries(since).filter(([version]) => parseMinor(version) <= newest));
};

/** Returns a rule's data for a minor version: each entry of its `since` changes members of the entries before. */
export const mergeSince = <T extends object>(since: Since<T>, minor?: string): T =>
  Object.assign({}, ...Object.values(selectSince(since, minor)));

/** Returns the number of a minor version: 35 for `1.35`. */
export const parseMinor = (version: string): number => {
  if (!/^1\.\d+$/.test(version)) throw new Failure(400, `"${version}" is no minor version of Kubernetes, such as 1.35`);
  return Number(version.slice(2));
};
