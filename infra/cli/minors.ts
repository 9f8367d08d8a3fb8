import { newestKubernetes, oldestKubernetes, parseMinor } from "#lib/since.ts";

/** All known minor versions, from the oldest to the newest. */
export const minors: readonly string[] = Array.from(
  { length: parseMinor(newestKubernetes) - parseMinor(oldestKubernetes) + 1 },
  (_, index) => `1.${parseMinor(oldestKubernetes) + index}`,
);

export const knownMinors = `${oldestKubernetes} to ${newestKubernetes}`;

/** Which clusters can call Postern; matchConditions are stable since 1.30. The README and pages have it, too. */
export const supportedClusters = `Clusters need Kubernetes 1.30 or newer. Postern knows how the versions ${knownMinors} differ.`;
