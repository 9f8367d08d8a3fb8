import { toMap } from "#lib/json.ts";
import type { DeployedObject } from "../../clusters/api.ts";

// The JSON of a release in the stage's bucket. Clusters with the same rules have equal objects. Each different object
// is stored once, in the list `values`, and clusters have its index there. A release with many equal clusters so stays
// small.

/** The part of a `Release` that is stored in another form, `StoredRelease`, in which equal objects are only once. */
interface ReleaseWithClusters {
  clusters: Record<string, RecordedCluster>;
}

interface RecordedCluster {
  manifests: DeployedObject[];
  /** For each rule, the time since which it has a webhook entry in the cluster. */
  since: Record<string, string>;
  /** For each rule, the number of probes that Postern has sent to it. */
  probed?: Record<string, number>;
}

interface StoredRelease {
  clusters: Record<string, StoredCluster>;
  /**
   * Every different value once. A webhook configuration in this list has no webhook entries itself, but the indexes of
   * its entries in the same list.
   */
  values: unknown[];
}

/** A cluster in its stored form. All numbers are indexes of `values`. */
interface StoredCluster {
  manifests: number[];
  /** For each time, the list of rules that have had entries since then: many rules have the same time. */
  since: Record<string, number>;
  /** The index of a map from rules to their numbers of probes. */
  probed?: number;
}

/** Returns a function that formats releases. Equal objects are written once, in `values`; an index stands for each. */
export const createReleaseFormatter = () => {
  const texts = new WeakMap<object, string>();
  const formatOnce = (value: object): string => {
    const text = texts.get(value) ?? JSON.stringify(value);
    texts.set(value, text);
    return text;
  };
  return (release: ReleaseWithClusters): string => {
    const indexes = new Map<string, number>();
    const storeValue = (text: string): number => {
      const index = indexes.get(text) ?? indexes.size;
      indexes.set(text, index);
      return index;
    };
    const storeObject = (object: DeployedObject): number => {
      if (!Array.isArray(object.webhooks)) return storeValue(formatOnce(object));
      const webhooks = object.webhooks.map((webhook) => storeValue(formatOnce(webhook)));
      return storeValue(JSON.stringify({ ...object, webhooks }));
    };
    const clusters = Object.entries(release.clusters).map(([name, cluster]) => {
      const { manifests, since, probed, ...rest } = cluster;
      // `since` has a time by rule. Its stored form has a list of rules by time, because many rules have the same time.
      const byTime = Map.groupBy(Object.entries(since), ([, time]) => time);
      const lists = [...byTime].map(([time, same]) => [time, storeValue(JSON.stringify(same.map(([rule]) => rule)))]);
      const stored = { ...rest, manifests: manifests.map(storeObject), since: Object.fromEntries(lists) };
      return [name, probed ? { ...stored, probed: storeValue(formatOnce(probed)) } : stored] as const;
    });
    const withoutValues: Pick<StoredRelease, "clusters"> = { ...release, clusters: Object.fromEntries(clusters) };
    return `${JSON.stringify(withoutValues).slice(0, -1)},"values":[${[...indexes.keys()].join(",")}]}`;
  };
};

/**
 * Parses a stored release. Only Postern writes it, so the shape of its JSON is not checked. `values` has each object of
 * the clusters once. Older versions of Postern wrote no `values`, and the cluster's name in URLs instead of {cluster}.
 */
export const parseRelease = <T extends ReleaseWithClusters>(text: string): T => {
  const stored: T | StoredRelease = JSON.parse(text);
  return "values" in stored ? restoreValues(stored) : replaceClusterNames(stored);
};

/**
 * Returns a stored release with its values in their places. The stored form has each value once, in `values`, and its
 * index in each place. It has `since` as a map from times to (indexes of) lists of rules.
 */
const restoreValues = <T extends ReleaseWithClusters>({ values, clusters, ...release }: StoredRelease): T => {
  for (const value of values) {
    const { webhooks } = toMap(value);
    if (Array.isArray(webhooks)) toMap(value).webhooks = webhooks.map((index) => values[index]);
  }
  const restored = Object.entries(clusters).map(([name, { manifests, since, probed, ...rest }]) => {
    const timesByRule = Object.entries(since).flatMap(([time, index]) => {
      const rules = values[index] as string[];
      return rules.map((rule) => [rule, time] as const);
    });
    const restoredCluster = {
      ...rest,
      manifests: manifests.map((index) => values[index]),
      since: Object.fromEntries(timesByRule),
    };
    return [name, probed === undefined ? restoredCluster : { ...restoredCluster, probed: values[probed] }];
  });
  return { ...release, clusters: Object.fromEntries(restored) } as unknown as T;
};

/** Replaces the cluster's name in URLs by the placeholder {cluster}. Older versions of Postern stored the name. */
const replaceClusterNames = <T extends ReleaseWithClusters>(release: T): T => {
  const clusters = Object.entries(release.clusters).map(([name, cluster]) => {
    const text = JSON.stringify(cluster).replaceAll(`/${name}.{key}/`, "/{cluster}.{key}/");
    return [name, JSON.parse(text)];
  });
  return { ...release, clusters: Object.fromEntries(clusters) };
};
