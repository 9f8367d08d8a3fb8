import { type EndpointConfig, findClusterSetup } from "#lib/core/endpoint.ts";
import type { Phase } from "#lib/rule.ts";
import type { StageBucket } from "../../aws/bucket.ts";
import { createFallbackForErrorNamed } from "../../aws/errors.ts";
import { Complaint } from "../../cli/complaint.ts";
import type { DeployedObject } from "../../clusters/api.ts";
import type { PosternConfig } from "../../config/config.ts";
import type { UrlPublicKeys } from "../stage/keyring.ts";
import { createReleaseFormatter, parseRelease } from "./release-format.ts";

/** What a release records of a rule. */
export interface ReleasedRule {
  /** The live version. */
  version: string;
  /** The hash of the rule's code, without its rule config. */
  logic: string;
  /** The config of the rule's function, from postern.yaml. The name stays, because stored releases contain it. */
  share: EndpointConfig;
  phases: Phase[];
  /** The versions of the rule that were live before `version`, the newest first. */
  earlier: string[];
}

/** What a release records of a cluster. */
export interface ReleasedCluster {
  /** When the cluster was updated. */
  at: string;
  keyVersion: number;
  /** The public key of the key that signed the cluster's URLs; absent in releases of older Postern versions. */
  signer?: string;
  /** The rules whose entries have failurePolicy Fail. */
  hardened: string[];
  /** The time since which each rule has a webhook entry in this cluster. */
  since: Record<string, string>;
  /** The number of probes that Postern has sent to each rule. They don't count as reviews of the cluster. */
  probed?: Record<string, number>;
  /** The kinds of policies that the cluster's API server accepted but didn't apply, and its minor version then. */
  policies?: { kubernetes: string; unapplied: readonly string[] };
  /** The objects that were applied to the cluster. Their URLs have a placeholder in place of the cluster's key. */
  manifests: DeployedObject[];
}

/** What a deployment deployed. Releases are stored in the stage's bucket. */
export interface Release {
  id: number;
  at: string;
  by: string;
  /** True once the deployment has finished. The next deployment continues a release that is not complete. */
  complete: boolean;
  /** The id of the release that a rollback returned to. */
  like?: number;
  /** The versions that a rollback has replaced, as `rule@version`. A rollback without `--to` prefers other versions. */
  withdrawn?: string[];
  /** The stage's public keys; absent in releases of older versions of Postern. */
  keys?: UrlPublicKeys;
  /** The key versions of each cluster in postern.yaml; absent in releases of older versions of Postern. */
  accepts?: Record<string, readonly number[]>;
  /**
   * The clusters that postern.yaml doesn't name any more: functions refuse their calls. The value has the public keys
   * that the stage had before, in the format of POSTERN_KEYS: one of these keys signed the cluster's URLs.
   */
  refused?: Record<string, string>;
  /**
   * The minor version of Kubernetes for which functions were built, by cluster. A cluster is absent if none of its
   * rules depends on the version, or if the version is unknown.
   */
  kubernetes?: Record<string, string>;
  rules: Record<string, ReleasedRule>;
  /** The rules that may have warm environments: recorded before these are requested, until they are deleted. */
  warm?: string[];
  /** All clusters. A cluster that this deployment has not updated is recorded as in the release before. */
  clusters: Record<string, ReleasedCluster>;
}

/** The releases in the bucket of a stage. */
export interface ReleaseStore {
  /** All releases that a command reads: the last ones in the bucket, at most `maxReleases`, the newest first. */
  all: Release[];
  save(release: Release): Promise<void>;
}

/** The number of releases that are read. A rollback can't go back to an older release. */
export const maxReleases = 10;

const folder = "releases/";
const buildKey = (id: number) => `${folder}${String(id).padStart(6, "0")}.json`;

/** Reads the releases of a stage. A stage without a bucket has none. */
export const readReleaseStore = async (open: () => Promise<StageBucket | undefined>): Promise<ReleaseStore> => {
  const bucket = await open();
  // A bucket that was deleted by hand counts as no bucket.
  const keys = bucket ? await listKeys(bucket).catch(createFallbackForErrorNamed("NoSuchBucket", [])) : [];
  const all = await Promise.all(keys.slice(-maxReleases).map((key) => bucket?.read(key)));
  const known = new Set(keys);
  const formatRelease = createReleaseFormatter();
  return {
    all: all
      .flatMap((object) => (object ? [parseRelease<Release>(object.text)] : []))
      .sort((left, right) => right.id - left.id),
    save: async (release) => {
      const currentBucket = await open();
      if (currentBucket === undefined) throw new Complaint("this stage has no bucket to write its release to", 3);
      const key = buildKey(release.id);
      const isWritten = await currentBucket.write(
        key,
        formatRelease(release),
        known.has(key) ? undefined : { IfNoneMatch: "*" },
      );
      if (!isWritten) throw new Complaint(`another command has just created release r${release.id}`, 1);
      known.add(key);
    },
  };
};

const listKeys = async (bucket: StageBucket): Promise<string[]> => {
  const keys: string[] = [];
  for await (const { key } of bucket.list(folder)) keys.push(key);
  return keys.sort();
};

/** Returns the release that a text such as "r7" names. */
export const requireRelease = (all: Release[], text: string): Release => {
  const found = all.find(({ id }) => `r${id}` === text);
  if (found) return found;
  const names = all.map(({ id }) => `r${id}`).join(", ");
  throw new Complaint(
    `there is no release ${text}; ${names === "" ? "nothing was released yet" : `there are ${names}`}`,
  );
};

/** Returns the versions of a rule that were live, the newest first. Versions that a rollback has replaced come last. */
export const listReleasedVersions = (all: Release[], rule: string): string[] => {
  const found = all.flatMap(({ rules }) => {
    const released = Object.hasOwn(rules, rule) ? rules[rule] : undefined;
    return released ? [released.version, ...released.earlier] : [];
  });
  const replaced = findRolledBackVersions(all);
  const wasReplaced = (version: string) => replaced.has(`${rule}@${version}`);
  return [...new Set([...found.filter((version) => !wasReplaced(version)), ...found])];
};

/** Returns the versions, as `rule@version`, that a rollback has replaced and that are not live now. */
const findRolledBackVersions = (all: Release[]): Set<string> => {
  const live = new Set(Object.entries(all[0]?.rules ?? {}).map(([rule, { version }]) => `${rule}@${version}`));
  return new Set(all.flatMap(({ withdrawn = [] }) => withdrawn).filter((version) => !live.has(version)));
};

/** Returns, by cluster, the key versions that the functions of a release accept. */
export const getAcceptedKeyVersions = ({ accepts, rules }: Release): Record<string, readonly number[]> => {
  if (accepts) return accepts;
  // In a release of an older Postern, each rule's config (`share`: its share of postern.yaml) names all clusters.
  const configs = Object.values(rules).map(({ share }) => share);
  const names = new Set(configs.flatMap(({ clusters }) => Object.keys(clusters)));
  const find = (name: string) =>
    configs.flatMap((config) => findClusterSetup(config, name) ?? [])[0]?.keyVersions ?? [];
  return Object.fromEntries([...names].map((name) => [name, find(name)]));
};

/**
 * Returns the clusters that functions must refuse: an earlier release had them, and postern.yaml doesn't name them any
 * more. The value of a cluster has the public keys that the stage had then: one of them signed the cluster's URLs. If
 * `publicKeys`, which functions accept now, has none of these keys, the cluster is left out: its calls fail anyway.
 */
export const findRefusedClusters = (
  newest: Release | undefined,
  { clusters }: Pick<PosternConfig, "clusters">,
  publicKeys: string,
): Record<string, string> => {
  if (newest === undefined) return {};
  const accepted = publicKeys.split(",");
  const clustersOfNewest = Object.keys(getAcceptedKeyVersions(newest)).map(
    (name) => [name, newest.keys?.accepted ?? publicKeys] as const,
  );
  const all = Object.entries({ ...newest.refused, ...Object.fromEntries(clustersOfNewest) });
  const hasAcceptedKey = (keys: string) => keys.split(",").some((key) => accepted.includes(key));
  return Object.fromEntries(all.filter(([name, keys]) => !clusters.has(name) && hasAcceptedKey(keys)));
};

/** Returns the clusters of a release in the order of their names. */
export const listReleasedClusters = (release: Release | undefined): [string, ReleasedCluster][] =>
  Object.entries(release?.clusters ?? {}).sort(([left], [right]) => (left < right ? -1 : 1));

/**
 * Returns the release to roll back to: the last one before the live release that is complete and has none of the
 * versions that earlier rollbacks have replaced. If a rollback has created the live release, or the one that was found,
 * the older release that it restored counts in its place.
 */
export const requireRollbackRelease = (all: Release[]): Release => {
  const live = findRestoredRelease(all, all[0]);
  const replaced = findRolledBackVersions(all);
  const isGood = ({ complete, rules }: Release) =>
    complete && !Object.entries(rules).some(([rule, { version }]) => replaced.has(`${rule}@${version}`));
  const earlier = all.find((release) => live !== undefined && release.id < live.id && isGood(release));
  const found = findRestoredRelease(all, earlier);
  if (found === undefined) throw new Complaint("there is no release before the one that is live", 1);
  return found;
};

/** Returns the release that a rollback has restored (`like`), or the release itself if no rollback has created it. */
const findRestoredRelease = (all: Release[], release: Release | undefined): Release | undefined => {
  if (release?.like === undefined) return release;
  return findRestoredRelease(
    all,
    all.find(({ id }) => id === release.like),
  );
};
