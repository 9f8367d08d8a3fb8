import { type EndpointConfig, findClusterSetup } from "#lib/core/endpoint.ts";
import type { Phase } from "#lib/rule.ts";
import type { StageBucket } from "../../aws/bucket.ts";
import { createFallbackForErrorNamed } from "../../aws/errors.ts";
import { Complaint } from "../../cli/complaint.ts";
import type { DeployedObject } from "../../clusters/api.ts";
import type { PosternConfig } from "../../config/config.ts";
import type { UrlPublicKeys } from "../stage/keyring.ts";
import { createReleaseFormatter, parseRelease } from "./release-format.ts";

/** What a release records of a rule: live version, hash of its code, config and phases, and versions live before. */
export interface ReleasedRule {
  version: string;
  /** The hash of the rule's code, without its rule config. */
  logic: string;
  share: EndpointConfig;
  phases: Phase[];
  /** The versions of the rule that were live before `version`, the newest first. */
  earlier: string[];
}

export interface ReleasedCluster {
  at: string;
  keyVersion: number;
  /**
   * The public half of the key that signed the cluster's webhook URLs; absent in releases of older Postern versions.
   */
  signer?: string;
  hardened: string[];
  /** The time since which each rule has a webhook entry in this cluster. */
  since: Record<string, string>;
  /** The number of probe reviews that Postern itself sent to each rule, which don't count as the cluster's. */
  probed?: Record<string, number>;
  /** The minor version of the cluster's API server, and the kinds of policies that it served but didn't apply. */
  policies?: { kubernetes: string; unapplied: readonly string[] };
  /**
   * The roles and webhook configurations applied to the cluster; their URLs are recorded without the cluster's key.
   */
  manifests: DeployedObject[];
}

export interface Release {
  id: number;
  at: string;
  by: string;
  /** True once the deployment has finished. The next deployment continues a release that is not complete. */
  complete: boolean;
  /** The id of the release that a rollback returned to. */
  like?: number;
  /** The versions that were rolled back from, as `rule@version`; a rollback without `--to` prefers others. */
  withdrawn?: string[];
  /** The stage's public keys; unknown in releases of older versions of Postern. */
  keys?: UrlPublicKeys;
  /** The key versions of each cluster in postern.yaml; absent in releases of older versions of Postern. */
  accepts?: Record<string, readonly number[]>;
  /**
   * The clusters that postern.yaml named before, whose keys functions refuse. The values are the public keys, as in
   * POSTERN_KEYS, of which one may have signed the cluster's URLs.
   */
  refused?: Record<string, string>;
  /**
   * The minor version of Kubernetes for which functions were built, by cluster. Absent for clusters without a rule that
   * differs by it, or whose version is unknown.
   */
  kubernetes?: Record<string, string>;
  rules: Record<string, ReleasedRule>;
  /** The rules of which a version may have warm environments: recorded before any are started, until all are released. */
  warm?: string[];
  /** All clusters of the release. One that the deployment didn't reach is recorded as it was before. */
  clusters: Record<string, ReleasedCluster>;
}

/** The releases of a stage that were read, the newest first, and a way to save another. */
export interface ReleaseStore {
  all: Release[];
  save(release: Release): Promise<void>;
}

/** The number of releases that are read; a rollback can't go further back. */
const maxReleases = 10;

const folder = "releases/";
const buildKey = (id: number) => `${folder}${String(id).padStart(6, "0")}.json`;

/** Reads the releases of a stage; there are none without a bucket. */
export const readReleaseStore = async (open: () => Promise<StageBucket | undefined>): Promise<ReleaseStore> => {
  const bucket = await open();
  // The stage's bucket may have been deleted by hand; then there are no releases.
  const keys = bucket ? await listKeys(bucket).catch(createFallbackForErrorNamed("NoSuchBucket", [])) : [];
  const all = await Promise.all(keys.slice(-maxReleases).map((key) => bucket?.read(key)));
  const known = new Set(keys);
  const formatRelease = createReleaseFormatter();
  return {
    all: all
      .flatMap((object) => (object ? [parseRelease<Release>(object.text)] : []))
      .sort((object, right) => right.id - object.id),
    save: async (release) => {
      const place = await open();
      if (place === undefined) throw new Complaint("this stage has no bucket to write its release to", 3);
      const key = buildKey(release.id);
      const isWritten = await place.write(
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

export const requireRelease = (all: Release[], text: string): Release => {
  const found = all.find(({ id }) => `r${id}` === text);
  if (found) return found;
  const names = all.map(({ id }) => `r${id}`).join(", ");
  throw new Complaint(
    `there is no release ${text}; ${names === "" ? "nothing was released yet" : `there are ${names}`}`,
  );
};

/** Returns the versions of a rule that went live, the newest first; those that were rolled back from come last. */
export const listReleasedVersions = (all: Release[], rule: string): string[] => {
  const found = all.flatMap(({ rules }) => {
    const released = Object.hasOwn(rules, rule) ? rules[rule] : undefined;
    return released ? [released.version, ...released.earlier] : [];
  });
  const bad = findRolledBackVersions(all);
  const isBad = (version: string) => bad.has(`${rule}@${version}`);
  return [...new Set([...found.filter((version) => !isBad(version)), ...found])];
};

/** Returns the versions, as `rule@version`, that were rolled back from and are not live now. */
const findRolledBackVersions = (all: Release[]): Set<string> => {
  const live = new Set(Object.entries(all[0]?.rules ?? {}).map(([rule, { version }]) => `${rule}@${version}`));
  return new Set(all.flatMap(({ withdrawn = [] }) => withdrawn).filter((version) => !live.has(version)));
};

/** Returns the key versions that a release's functions accept of each cluster in postern.yaml. */
export const getAcceptedKeyVersions = ({ accepts, rules }: Release): Record<string, readonly number[]> => {
  if (accepts) return accepts;
  // In a release of an older version of Postern, the config of each rule names all clusters.
  const configs = Object.values(rules).map(({ share }) => share);
  const names = new Set(configs.flatMap(({ clusters }) => Object.keys(clusters)));
  const find = (name: string) =>
    configs.flatMap((config) => findClusterSetup(config, name) ?? [])[0]?.keyVersions ?? [];
  return Object.fromEntries([...names].map((name) => [name, find(name)]));
};

/**
 * Returns the clusters whose keys functions refuse: those that an earlier release had and postern.yaml no longer names.
 * A cluster is left out once none of the keys is accepted that may have signed its URLs.
 */
export const findRefusedClusters = (
  newest: Release | undefined,
  { clusters }: Pick<PosternConfig, "clusters">,
  publicKeys: string,
): Record<string, string> => {
  if (newest === undefined) return {};
  const accepted = publicKeys.split(",");
  const last = Object.keys(getAcceptedKeyVersions(newest)).map(
    (name) => [name, newest.keys?.accepted ?? publicKeys] as const,
  );
  const all = Object.entries({ ...newest.refused, ...Object.fromEntries(last) });
  const mayCall = (keys: string) => keys.split(",").some((key) => accepted.includes(key));
  return Object.fromEntries(all.filter(([name, keys]) => !clusters.has(name) && mayCall(keys)));
};

export const listReleasedClusters = (release: Release | undefined): [string, ReleasedCluster][] =>
  Object.entries(release?.clusters ?? {}).sort(([left], [right]) => (left < right ? -1 : 1));

/** Returns the release to roll back to: the last one before the live one without versions that were rolled back. */
export const requireRollbackRelease = (all: Release[]): Release => {
  const newest = findOrigin(all, all[0]);
  const bad = findRolledBackVersions(all);
  const isGood = ({ complete, rules }: Release) =>
    complete && !Object.entries(rules).some(([rule, { version }]) => bad.has(`${rule}@${version}`));
  const earlier = all.find((release) => newest !== undefined && release.id < newest.id && isGood(release));
  const found = findOrigin(all, earlier);
  if (found === undefined) throw new Complaint("there is no release before the one that is live", 1);
  return found;
};

const findOrigin = (all: Release[], release: Release | undefined): Release | undefined => {
  if (release?.like === undefined) return release;
  return findOrigin(
    all,
    all.find(({ id }) => id === release.like),
  );
};
