import type { Share } from "#lib/endpoint.ts";
import type { Phase } from "#lib/rule.ts";
import type { Bucket } from "../aws/bucket.ts";
import { unless } from "../aws/errors.ts";
import { Complaint } from "../cli/complaint.ts";
import type { Manifest } from "../clusters/api.ts";
import type { PublicKeys } from "./keyring.ts";

/** A version that passed its cases and went live. */
export interface ReleasedRule {
  version: string;
  /** What it was made of, without its share of postern.yaml. */
  logic: string;
  share: Share;
  phases: Phase[];
  /** Those that were live before it, the last one first. */
  earlier: string[];
}

/** What a cluster was told. */
export interface ReleasedCluster {
  at: string;
  keyVersion: number;
  /** The public half of the key that signed its URLs; unknown in releases of older versions of Postern. */
  signer?: string;
  /** Those that guard, and by now fail closed. */
  hardened: string[];
  /** Since when each rule has had entries there. */
  since: Record<string, string>;
  /** How many reviews we sent to each rule ourselves. */
  probed?: Record<string, number>;
  /** Roles and webhook configurations, the key left out of their URLs. */
  manifests: Manifest[];
}

/** The versions of all rules, and the webhook entries that go with them. */
export interface Release {
  id: number;
  at: string;
  by: string;
  /** Whether it got to its end; the next deployment goes on with one that didn't. */
  complete: boolean;
  /** Of one that undoes others: which it is like. */
  like?: number;
  /** What was rolled back from, as `rule@version`: nobody goes back to that by himself. */
  withdrawn?: string[];
  /** The stage's public keys; unknown in releases of older versions of Postern. */
  keys?: PublicKeys;
  rules: Record<string, ReleasedRule>;
  /** By cluster; of clusters that it didn't get to, as they were before. */
  clusters: Record<string, ReleasedCluster>;
}

export interface Releases {
  /** The newest first. */
  all: Release[];
  save(release: Release): Promise<void>;
}

/** How many are looked at; nobody goes back further. */
const remembered = 10;

const folder = "releases/";
const keyOf = (id: number) => `${folder}${String(id).padStart(6, "0")}.json`;

/** What was released in a stage; nothing yet, where there is no bucket. */
export const openReleases = async (open: () => Promise<Bucket | undefined>): Promise<Releases> => {
  const bucket = await open();
  // Where somebody took the bucket away, nothing is known any more.
  const keys = bucket ? await listKeys(bucket).catch(unless("NoSuchBucket", [])) : [];
  const all = await Promise.all(keys.slice(-remembered).map((key) => bucket?.read(key)));
  const known = new Set(keys);
  return {
    // Nobody else writes there.
    all: all.flatMap((one): Release[] => (one ? [JSON.parse(one.text)] : [])).sort((one, other) => other.id - one.id),
    save: async (release) => {
      const place = await open();
      if (place === undefined) throw new Complaint("this stage has no bucket to write its release to", 3);
      const key = keyOf(release.id);
      const isWritten = await place.write(
        key,
        JSON.stringify(release),
        known.has(key) ? undefined : { IfNoneMatch: "*" },
      );
      if (!isWritten) throw new Complaint(`somebody else has just made release r${release.id}`, 1);
      known.add(key);
    },
  };
};

const listKeys = async (bucket: Bucket): Promise<string[]> => {
  const keys: string[] = [];
  for await (const { key } of bucket.list(folder)) keys.push(key);
  return keys.sort();
};

/** `r12`, as people write it. */
export const releaseNamed = (all: Release[], text: string): Release => {
  const found = all.find(({ id }) => `r${id}` === text);
  if (found) return found;
  const names = all.map(({ id }) => `r${id}`).join(", ");
  throw new Complaint(
    `there is no release ${text}; ${names === "" ? "nothing was released yet" : `there are ${names}`}`,
  );
};

/** The versions of a rule that passed their cases and went live, the last one first; those last that were rolled back. */
export const releasedVersions = (all: Release[], rule: string): string[] => {
  const found = all.flatMap(({ rules }) => {
    const one = Object.hasOwn(rules, rule) ? rules[rule] : undefined;
    return one ? [one.version, ...one.earlier] : [];
  });
  const bad = findWithdrawn(all);
  const isBad = (version: string) => bad.has(`${rule}@${version}`);
  return [...new Set([...found.filter((one) => !isBad(one)), ...found])];
};

/** What was rolled back from, unless it is live again. */
export const findWithdrawn = (all: Release[]): Set<string> => {
  const live = new Set(Object.entries(all[0]?.rules ?? {}).map(([rule, { version }]) => `${rule}@${version}`));
  return new Set(all.flatMap(({ withdrawn = [] }) => withdrawn).filter((one) => !live.has(one)));
};

/** What clusters were told, by their names. */
export const listReleasedClusters = (release: Release | undefined): [string, ReleasedCluster][] =>
  Object.entries(release?.clusters ?? {}).sort(([one], [other]) => (one < other ? -1 : 1));

/** The release to go back to: what was live before the newest, or before what it is like, and was not rolled back from. */
export const releaseBefore = (all: Release[]): Release => {
  const newest = originOf(all, all[0]);
  const bad = findWithdrawn(all);
  const isGood = ({ complete, rules }: Release) =>
    complete && !Object.entries(rules).some(([rule, { version }]) => bad.has(`${rule}@${version}`));
  const earlier = all.find((one) => newest !== undefined && one.id < newest.id && isGood(one));
  const found = originOf(all, earlier);
  if (found === undefined) throw new Complaint("there is no release before the one that is live", 1);
  return found;
};

/** Of one that undid others: the release that it went back to, if it is still known. */
const originOf = (all: Release[], release: Release | undefined): Release | undefined => {
  if (release?.like === undefined) return release;
  return originOf(
    all,
    all.find(({ id }) => id === release.like),
  );
};
